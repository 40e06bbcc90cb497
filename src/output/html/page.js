// SPDX-License-Identifier: MIT
// The page around the graph: head, views, search, table, keys. All text goes in as text, never as markup.

const $ = id => document.getElementById(id);
const profile = new Profile(JSON.parse($('data').textContent));
const graph = new Graph(profile, {scroll: $('scroll'), space: $('space'), canvas: $('canvas'),
	overlay: $('overlay')});
const all = profile.total[0];
const state = {view: 'flame', order: {key: 'self', down: true}, rows: 100, test: null, timer: 0};
let reverse = null; // of the whole profile, made when first asked for

const number = n => n.toLocaleString('en-US');
const percent = (part, whole = all) => {
	const share = whole ? 100 * part / whole : 0;
	return `${share > 0 && share < 0.05 ? '<0.1' : share.toFixed(1)} %`;
};

function element(name, text, className) {
	const e = document.createElement(name);
	if (text !== undefined)
		e.textContent = text;
	if (className)
		e.className = className;
	return e;
}

// Head

function describe() {
	const {meta, quality: q, processes} = profile;
	const names = [...new Set(processes.map(p => p.name).filter(Boolean).map(visible))];
	const title = visible(meta.command || '') || names.slice(0, 3).join(', ') || 'CPU profile';
	const pids = processes.length === 1 ? `pid ${processes[0].pid}` : `${number(processes.length)} processes`;
	const start = meta.start && !isNaN(Date.parse(meta.start)) ?
		new Date(meta.start).toLocaleString(undefined, {dateStyle: 'medium', timeStyle: 'medium'}) : meta.start;
	const facts = [names.length && names[0] !== title && processes.length === 1 ? names[0] : '', pids, start,
		q.seconds ? `${q.seconds.toFixed(1)} s` : '', q.rate ? `${number(q.rate)} Hz` : '',
		meta.event ? `event ${meta.event}` : '', meta.version ? `moonspy ${meta.version}` : ''];
	document.title = `${title} \u2013 moonspy`;
	$('title').textContent = title;
	$('facts').textContent = facts.filter(Boolean).join(' \u00b7 ');
	describeQuality(q);
}

// The last line that record prints, in the same words, and the reasons.
function describeQuality(q) {
	const line = $('quality');
	const parts = [
		[`${number(q.samples)} samples in ${q.seconds.toFixed(1)} s (${number(q.rate)} Hz)`],
		[`${number(q.lost)} lost`, q.lost],
		[`${number(q.truncated)} truncated`, q.truncated],
		// Rounded down: "100.0 %" is said only if it is all of them.
		[`${(q.samples ? Math.floor(1000 * q.whole / q.samples) / 10 : 0).toFixed(1)} % whole stacks`],
	];
	if (q.estimated)
		parts.push([`${(Math.floor(1000 * q.estimated / q.samples) / 10).toFixed(1)} % with estimates`]);
	if (q.bpf_ns_per_sample)
		parts.push([`${Math.round(q.bpf_ns_per_sample / 1000)} us a sample`]);
	for (const [reason, count] of Object.entries(q.errors))
		parts.push([`${number(count)} ${visible(reason)}`, count]);
	parts.forEach(([text, bad], i) => {
		line.append(i ? ', ' : '', element('span', text, bad ? 'bad' : ''));
	});
}

const SHARES = [
	['interpreter', 'interpreter', 'lua'], ['compiled', 'compiled code', 'jit'], ['gc', 'GC', 'state'],
	['compiler', 'JIT compiler', 'compiler'], ['exit', 'trace exits', 'exit'], ['c', 'C', 'cfunction'],
	['kernel', 'kernel', 'kernel'], ['other', 'other', 'group'],
];

function describeShares() {
	const sums = profile.shares(), words = [];
	$('shares').replaceChildren();
	$('share-list').replaceChildren();
	for (const [id, label, kind] of SHARES) {
		const sum = sums.get(id), fill = colour(kind, 2, graph.dark);
		if (!sum && (id === 'exit' || id === 'other'))
			continue;
		const item = element('li'), chip = element('span', undefined, 'chip');
		chip.style.background = fill;
		item.append(chip, `${label} `, element('b', percent(sum)));
		$('share-list').append(item);
		words.push(`${label} ${percent(sum)}`);
		if (sum) {
			const part = element('span');
			part.style.flex = `${sum / all} 0 0`;
			part.style.background = fill;
			part.title = `${label} ${percent(sum)}`;
			$('shares').append(part);
		}
	}
	$('shares').setAttribute('aria-label', words.join(', '));
}

function describeColours() {
	const there = new Set(profile.kinds);
	$('legend').replaceChildren(...KINDS.flatMap((kind, i) => {
		if (!there.has(i))
			return [];
		const item = element('li'), chip = element('span', undefined, 'chip');
		chip.style.background = colour(kind.id, 2, graph.dark);
		item.append(chip, kind.label);
		return [item];
	}));
}

// Details of a box

function facts(node) {
	const tree = graph.tree, frame = tree.frameOf(node), total = tree.totalOf(node), self = tree.selfOf(node);
	const parent = tree.parentOf(node), list = [];
	if (frame >= 0)
		list.push(KINDS[profile.kinds[frame]].label);
	list.push(`${percent(total)} (${number(total)} samples)`);
	if (self)
		list.push(`self ${percent(self)}`);
	if (parent !== null && tree.totalOf(parent) !== all)
		list.push(`${percent(total, tree.totalOf(parent))} of its ${tree === profile ? 'caller' : 'callee'}`);
	return list;
}

function detail(node) {
	const line = $('details');
	line.replaceChildren();
	if (node === null) {
		line.append(element('i', 'Point at a function, or press Tab and use the arrows. Click or Enter zooms.'));
		return;
	}
	line.append(element('b', graph.textOf(node)), ...facts(node).map(fact => element('span', fact)));
}

function tip(node, x, y) {
	const box = $('tip');
	box.hidden = node === null;
	if (node === null)
		return;
	box.replaceChildren(element('b', graph.textOf(node)), ...facts(node).map(fact => element('div', fact)));
	const {width, height} = box.getBoundingClientRect();
	box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
	box.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18}px`;
}

// Zoom

function zoom(node) {
	performance.mark('zoom');
	graph.zoomed = node;
	graph.selected = node;
	refresh();
	performance.measure('zoom', 'zoom');
}

function refresh() {
	graph.layout();
	graph.rewind();
	graph.draw();
	showPath();
	showMatches();
	detail(graph.selected);
}

function showPath() {
	const tree = graph.tree, nodes = [], list = $('path');
	for (let node = graph.zoomed; node !== null; node = tree.parentOf(node))
		nodes.unshift(node);
	list.replaceChildren();
	nodes.forEach((node, i) => {
		const skipped = i > 0 && i < nodes.length - 4;
		const item = element('li');
		if (skipped) {
			if (i === 1)
				list.append(element('li', '\u2026'));
			return;
		}
		const button = element('button', graph.textOf(node).slice(0, 200));
		button.type = 'button';
		button.title = graph.textOf(node).slice(0, 500);
		button.addEventListener('click', () => zoom(node));
		item.append(button);
		list.append(item);
	});
	list.lastChild.setAttribute('aria-current', 'true');
	$('reset').hidden = graph.zoomed === tree.root && !tree.name;
}

// Everything again: out of the zoom, and out of the callers of one function.
function reset() {
	if (graph.tree.name)
		graph.show(wholeReverse());
	zoom(graph.tree.root);
	graph.selected = null;
	graph.drawMarks();
	detail(null);
}

// Views

function wholeReverse() {
	reverse = reverse || Reverse.whole(profile);
	return reverse;
}

function setView(view, tree) {
	const table = view === 'table';
	state.view = view;
	for (const id of ['flame', 'icicle', 'reverse', 'table']) {
		const button = $(`view-${id}`);
		button.setAttribute('aria-checked', String(id === view));
		button.tabIndex = id === view ? 0 : -1;
	}
	$('graph-panel').hidden = table;
	$('table-panel').hidden = !table;
	if (table) {
		showTable();
		showMatches();
		return;
	}
	performance.mark('view');
	const wanted = tree || (view === 'reverse' ? wholeReverse() : profile);
	graph.icicle = view !== 'flame';
	if (graph.tree !== wanted)
		graph.show(wanted);
	refresh();
	performance.measure('view', 'view');
}

function callers(entry) {
	setView('reverse', Reverse.callersOf(profile, entry));
	$('overlay').focus();
}

function callersOfSelected() {
	const frame = graph.selected === null ? -1 : graph.tree.frameOf(graph.selected);
	const entry = frame < 0 ? null : profile.functions().find(f => f.frames.includes(frame));
	if (entry)
		callers(entry);
}

// Search

function search() {
	const input = $('search');
	let bad = false;
	try {
		state.test = matcher(input.value, $('regex').getAttribute('aria-pressed') === 'true');
	} catch (error) {
		bad = true;
		state.test = null;
	}
	input.setAttribute('aria-invalid', String(bad));
	graph.matched = state.test ? Uint8Array.from(profile.names, name => state.test(name) ? 1 : 0) : null;
	if (bad)
		$('matches').textContent = 'not a regular expression';
	else
		showMatches();
	if (state.view === 'table')
		showTable();
	else
		graph.draw();
}

function showMatches() {
	const output = $('matches');
	if (!graph.matched) {
		output.textContent = '';
		return;
	}
	const zoomed = graph.tree === profile && graph.zoomed;
	const share = `${percent(profile.matching(graph.matched))} match`;
	output.textContent = zoomed ? `${share}, ${percent(profile.matching(graph.matched, graph.zoomed),
		profile.total[graph.zoomed])} of the zoom` : share;
}

// Table

const kindOf = entry => {
	let best = profile.kinds[entry.frames[0]], most = 0;
	for (const [kind, self] of entry.kinds)
		if (self > most) {
			best = kind;
			most = self;
		}
	return best;
};

function tableRows() {
	const {key, down} = state.order;
	const rows = profile.functions().filter(entry => profile.kinds[entry.frames[0]] !== KIND.group &&
		(!state.test || entry.frames.some(frame => graph.matched[frame])));
	const value = {name: e => e.name, kind: e => KINDS[kindOf(e)].label, self: e => e.self,
		total: e => e.total}[key];
	const compare = (a, b) => a < b ? -1 : a > b ? 1 : 0;
	return rows.sort((a, b) => (down ? -1 : 1) * compare(value(a), value(b)) || b.total - a.total ||
		compare(a.name, b.name));
}

function share(value) {
	const cell = element('td', undefined, 'number'), meter = element('span', undefined, 'meter');
	const fill = element('i');
	fill.style.width = `${all ? 100 * value / all : 0}%`;
	meter.append(fill);
	cell.append(element('span', percent(value), 'value'), meter);
	cell.title = `${number(value)} samples`;
	return cell;
}

function tableRow(entry) {
	const row = element('tr'), name = element('td', undefined, 'name'), kind = element('td', undefined, 'kind');
	const action = element('td', undefined, 'action'), button = element('button', 'callers');
	const chip = element('span', undefined, 'chip');
	chip.style.background = colour(KINDS[kindOf(entry)].id, 2, graph.dark);
	kind.append(chip, entry.kinds.size > 1 ? [...entry.kinds].sort((a, b) => b[1] - a[1])
		.map(([k, self]) => `${KINDS[k].id} ${percent(self, entry.self)}`).join(', ') : KINDS[kindOf(entry)].label);
	name.append(element('span', entry.name));
	button.type = 'button';
	button.setAttribute('aria-label', `Callers of ${entry.name.slice(0, 200)}`);
	button.addEventListener('click', () => callers(entry));
	action.append(button);
	row.append(share(entry.self), share(entry.total), name, kind, action);
	return row;
}

function showTable() {
	const rows = tableRows(), more = $('more');
	$('rows').replaceChildren(...rows.slice(0, state.rows).map(tableRow));
	more.hidden = rows.length <= state.rows;
	more.textContent = `Show ${number(Math.min(rows.length - state.rows, 1000))} more of ${number(rows.length)}`;
	for (const header of document.querySelectorAll('th button')) {
		const sorted = header.dataset.key === state.order.key;
		header.parentNode.setAttribute('aria-sort', !sorted ? 'none' : state.order.down ? 'descending' : 'ascending');
	}
}

function sortBy(key) {
	const down = key === 'self' || key === 'total';
	state.order = {key, down: state.order.key === key ? !state.order.down : down};
	showTable();
}

// Dark and light

// A page opened from a file may not be allowed to remember anything.
function remembered(value) {
	try {
		if (value)
			localStorage.setItem('moonspy-theme', value);
		return localStorage.getItem('moonspy-theme');
	} catch (error) {
		return null;
	}
}

function setTheme(dark) {
	document.documentElement.dataset.theme = dark ? 'dark' : 'light';
	graph.dark = dark;
	graph.readTheme();
	describeShares();
	describeColours();
	if (state.view === 'table')
		showTable();
	if (graph.rows)
		graph.draw();
}

function toggleTheme() {
	remembered(graph.dark ? 'light' : 'dark');
	setTheme(!graph.dark);
}

// Events

const KEYS = {
	'/': () => { $('search').focus(); $('search').select(); },
	'?': () => $('keys').showModal(),
	'Escape': reset,
	'i': () => setView(state.view === 'icicle' ? 'flame' : 'icicle'),
	'r': () => setView(state.view === 'reverse' ? 'flame' : 'reverse'),
	't': () => setView(state.view === 'table' ? 'flame' : 'table'),
	'c': callersOfSelected,
	'd': toggleTheme,
};

function onKey(event) {
	const writing = event.target === $('search');
	if (event.ctrlKey || event.altKey || event.metaKey || $('keys').open)
		return;
	if (writing && event.key === 'Escape') {
		$('search').value = '';
		search();
		$('overlay').focus();
	} else if (writing && event.key === 'Enter') {
		$('overlay').focus();
	} else if (!writing && KEYS[event.key]) {
		KEYS[event.key]();
	} else {
		return;
	}
	event.preventDefault();
}

function onGraphKey(event) {
	const selected = graph.selected === null ? graph.zoomed : graph.selected;
	if (event.key.startsWith('Arrow')) {
		graph.selected = graph.selected === null ? selected : graph.neighbour(selected, event.key);
		graph.reveal(graph.selected);
		graph.draw();
		detail(graph.selected);
	} else if (event.key === 'Enter') {
		zoom(selected);
	} else if (event.key === 'Backspace') {
		const parent = graph.tree.parentOf(graph.zoomed);
		if (parent !== null)
			zoom(parent);
	} else {
		return;
	}
	event.preventDefault();
}

// Arrows move within the group of buttons, as for radio buttons.
function onViewKey(event) {
	const buttons = [...document.querySelectorAll('.segments button')];
	const step = {ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1}[event.key];
	if (!step)
		return;
	const next = buttons[(buttons.indexOf(event.target) + step + buttons.length) % buttons.length];
	next.focus();
	next.click();
	event.preventDefault();
}

function onMove(event) {
	const node = graph.at(event.offsetX, event.offsetY);
	if (node !== graph.hovered) {
		graph.hovered = node;
		graph.drawMarks();
		detail(node === null ? graph.selected : node);
	}
	tip(event.pointerType === 'touch' ? null : node, event.clientX, event.clientY);
}

function onLeave() {
	graph.hovered = null;
	graph.drawMarks();
	tip(null);
	detail(graph.selected);
}

function listen() {
	const overlay = $('overlay');
	overlay.addEventListener('pointermove', onMove);
	overlay.addEventListener('pointerleave', onLeave);
	overlay.addEventListener('click', event => {
		const node = graph.at(event.offsetX, event.offsetY);
		if (node !== null)
			zoom(node);
		tip(null);
	});
	overlay.addEventListener('keydown', onGraphKey);
	document.addEventListener('keydown', onKey);
	$('scroll').addEventListener('scroll', () => {
		// Zooming scrolls too, and has drawn already.
		if (graph.drawnAt === graph.scroll.scrollTop)
			return;
		tip(null);
		graph.draw();
	});
	$('search').addEventListener('input', () => {
		clearTimeout(state.timer);
		state.timer = setTimeout(search, profile.names.length > 20000 ? 150 : 0);
	});
	$('regex').addEventListener('click', () => {
		const button = $('regex');
		button.setAttribute('aria-pressed', String(button.getAttribute('aria-pressed') !== 'true'));
		search();
	});
	for (const id of ['flame', 'icicle', 'reverse', 'table'])
		$(`view-${id}`).addEventListener('click', () => setView(id));
	document.querySelector('.segments').addEventListener('keydown', onViewKey);
	for (const header of document.querySelectorAll('th button'))
		header.addEventListener('click', () => sortBy(header.dataset.key));
	$('more').addEventListener('click', () => { state.rows += 1000; showTable(); });
	$('reset').addEventListener('click', reset);
	$('theme').addEventListener('click', toggleTheme);
	$('help').addEventListener('click', () => $('keys').showModal());
	matchMedia('(prefers-color-scheme: dark)').addEventListener('change', event => {
		if (!remembered())
			setTheme(event.matches);
	});
	new ResizeObserver(() => {
		if (state.view !== 'table' && (graph.scroll.clientWidth !== graph.width ||
			graph.scroll.clientHeight !== graph.height))
			refresh();
	}).observe($('scroll'));
}

describe();
setTheme(remembered() ? remembered() === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches);
graph.show(profile);
setView('flame');
listen();
performance.mark('first-render');
