// SPDX-License-Identifier: MIT
// The profile: decoding it, sums over it, its reverse, and searching it. Nothing here touches the page.

// As MSP_FRAME_KINDS, and after them the frames that stand for processes and threads. suffix: what the
// text ends with, which colours say here.
const KINDS = [
	{id: 'lua', label: 'Lua, interpreted', suffix: ''},
	{id: 'jit', label: 'Lua, compiled', suffix: '_[j]'},
	{id: 'inlined', label: 'Lua, inlined', suffix: '_[i]'},
	{id: 'fast', label: 'fast function', suffix: ''},
	{id: 'cfunction', label: 'C function', suffix: ''},
	{id: 'native', label: 'native', suffix: ''},
	{id: 'kernel', label: 'kernel', suffix: '_[k]'},
	{id: 'state', label: 'VM state', suffix: ''},
	{id: 'error', label: 'error', suffix: ''},
	{id: 'group', label: 'process, thread', suffix: ''},
];
const KIND = Object.fromEntries(KINDS.map((kind, i) => [kind.id, i]));

// Base64 of varints; numbers may have more than 32 bits.
function varints(base64) {
	const bytes = atob(base64);
	let at = 0;
	return {
		more: () => at < bytes.length,
		next() {
			let byte = bytes.charCodeAt(at++);
			if (byte < 128)
				return byte;
			let value = byte & 127, scale = 128;
			do {
				byte = bytes.charCodeAt(at++);
				value += (byte & 127) * scale;
				scale *= 128;
			} while (byte >= 128);
			return value;
		},
	};
}

// Control characters as the other formats write them.
function visible(text) {
	return text.replace(/[\x00-\x1f\x7f]/g, c => `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`);
}

// The text without what the colour says.
function plainName(raw, kind) {
	const suffix = KINDS[kind].suffix, name = visible(raw);
	return suffix && name.endsWith(suffix) ? name.slice(0, -suffix.length) : name;
}

// Nodes are numbered in preorder, 0 is the root. end[i] is the first node after i's subtree, so the
// children of i are i + 1, end[i + 1], ... while below end[i].
class Profile {
	constructor(data) {
		this.meta = data.meta;
		this.quality = data.quality;
		this.processes = data.processes;
		this.kinds = data.kinds;
		this.names = data.names;
		this.labels = data.names.map((name, i) => plainName(name, data.kinds[i]));
		this.readNodes(data.nodes);
		this.sum();
	}

	readNodes(base64) {
		const input = varints(base64);
		// A node takes three bytes or more, which are four characters.
		const room = Math.floor(base64.length / 4) + 2;
		this.parent = new Int32Array(room);
		this.frame = new Int32Array(room);
		this.depth = new Uint16Array(room);
		this.self = new Float64Array(room);
		this.frame[0] = -1;
		let n = 1, before = 0;
		while (input.more()) {
			for (let up = input.next(); up > 0; up--)
				before = this.parent[before];
			this.parent[n] = before;
			this.depth[n] = this.depth[before] + 1;
			this.frame[n] = input.next();
			this.self[n] = input.next();
			before = n++;
		}
		this.count = n;
	}

	// Totals and ends upwards, then starts downwards: siblings stand side by side from their parent's start.
	sum() {
		const {count, parent, self} = this;
		const total = this.total = self.slice(0, count);
		const end = this.end = new Int32Array(count);
		const start = this.start = new Float64Array(count);
		const used = new Float64Array(count);
		end[0] = count;
		for (let i = count - 1; i > 0; i--) {
			end[i] = end[i] || i + 1;
			total[parent[i]] += total[i];
			if (end[parent[i]] < end[i])
				end[parent[i]] = end[i];
		}
		for (let i = 1; i < count; i++) {
			start[i] = start[parent[i]] + used[parent[i]];
			used[parent[i]] += total[i];
		}
	}

	// Calls visit(node) for all below and with node that are at least as wide as least.
	visit(node, least, visit) {
		const {end, total} = this, last = end[node];
		for (let i = node; i < last;) {
			if (total[i] < least) {
				i = end[i];
			} else {
				visit(i);
				i++;
			}
		}
	}

	get root() { return 0; }
	frameOf(node) { return this.frame[node]; }
	totalOf(node) { return this.total[node]; }
	selfOf(node) { return this.self[node]; }
	startOf(node) { return this.start[node]; }
	depthOf(node) { return this.depth[node]; }
	parentOf(node) { return node ? this.parent[node] : null; }
	childrenOf(node) {
		const children = [];
		for (let i = node + 1; i < this.end[node]; i = this.end[i])
			children.push(i);
		return children;
	}

	// Functions: frames with the same label are one, compiled or not; recursion is counted once. Also
	// gives the nodes at which each begins that are below no other of the same function.
	functions() {
		if (this.functionList)
			return this.functionList;
		const byLabel = new Map(), list = [], of = new Int32Array(this.names.length);
		this.labels.forEach((label, i) => {
			const key = label.replace(/^~/, '');
			if (!byLabel.has(key)) {
				byLabel.set(key, list.length);
				list.push({name: key, self: 0, total: 0, kinds: new Map(), frames: [], nodes: []});
			}
			of[i] = byLabel.get(key);
			list[of[i]].frames.push(i);
		});
		const open = new Int32Array(list.length); // end of the outermost node of it that we are in
		for (let i = 1; i < this.count; i++) {
			const f = of[this.frame[i]], entry = list[f];
			if (this.self[i]) {
				const kind = this.kinds[this.frame[i]];
				entry.self += this.self[i];
				entry.kinds.set(kind, (entry.kinds.get(kind) || 0) + this.self[i]);
			}
			if (i >= open[f]) {
				open[f] = this.end[i];
				entry.total += this.total[i];
				entry.nodes.push(i);
			}
		}
		this.functionOf = of;
		return this.functionList = list.filter(entry => entry.nodes.length);
	}

	// Samples with at least one frame that matches: 1 in matched, by frame.
	matching(matched, node = 0) {
		let sum = 0;
		for (let i = node; i < this.end[node];) {
			if (i && matched[this.frame[i]]) {
				sum += this.total[i];
				i = this.end[i];
			} else {
				i++;
			}
		}
		return sum;
	}

	// Whose code ran, by the innermost frame; native code that the VM runs for its own sake counts as that.
	shares() {
		const states = {'[gc]': 'gc', '[jit compiler]': 'compiler', '[trace exit]': 'exit'};
		const ids = ['interpreter', 'compiled', 'gc', 'compiler', 'exit', 'c', 'kernel', 'other'];
		const place = id => ids.indexOf(id);
		const byKind = {lua: 'interpreter', fast: 'interpreter', jit: 'compiled', inlined: 'compiled',
			cfunction: 'c', native: 'c', kernel: 'kernel'};
		const ofFrame = this.kinds.map((kind, i) => place(kind === KIND.state ?
			states[this.names[i]] || 'other' : byKind[KINDS[kind].id] || 'other'));
		const inState = new Int8Array(this.count).fill(-1);
		const sums = ids.map(() => 0);
		for (let i = 1; i < this.count; i++) {
			const frame = this.frame[i], kind = this.kinds[frame];
			if (kind === KIND.state)
				inState[i] = ofFrame[frame];
			else if (kind === KIND.native)
				inState[i] = inState[this.parent[i]];
			sums[inState[i] < 0 ? ofFrame[frame] : inState[i]] += this.self[i];
		}
		return new Map(ids.map((id, i) => [id, sums[i]]));
	}
}

// The tree upside down: below the root what took the time, below that its callers. A node is made when it
// is looked at; it keeps where in the profile the samples under it stand.
class Reverse {
	// nodes: where to begin; weights: how many samples each stands for. name: whose callers, for the root.
	constructor(profile, nodes, weights, name) {
		this.profile = profile;
		this.name = name;
		let total = 0;
		for (const weight of weights)
			total += weight;
		this.slots = new Int32Array(profile.names.length).fill(-1);
		this.root = {frame: -1, total, self: 0, start: 0, depth: 0, parent: null, children: null,
			nodes: null, weights: null};
		this.root.children = this.group(this.root, nodes, weights);
	}

	static whole(profile) {
		const nodes = [], weights = [];
		for (let i = 1; i < profile.count; i++)
			if (profile.self[i]) {
				nodes.push(i);
				weights.push(profile.self[i]);
			}
		return new Reverse(profile, nodes, weights, null);
	}

	static callersOf(profile, entry) {
		return new Reverse(profile, entry.nodes, entry.nodes.map(i => profile.total[i]), entry.name);
	}

	// Children of parent, the heaviest first; nodes are taken apart by their frame.
	group(parent, nodes, weights) {
		const {profile, slots} = this, groups = [];
		for (let k = 0; k < nodes.length; k++) {
			const frame = profile.frame[nodes[k]];
			if (slots[frame] < 0) {
				slots[frame] = groups.length;
				groups.push({frame, total: 0, self: 0, start: 0, depth: parent.depth + 1, parent,
					children: null, nodes: [], weights: []});
			}
			const group = groups[slots[frame]];
			group.total += weights[k];
			group.nodes.push(nodes[k]);
			group.weights.push(weights[k]);
		}
		for (const group of groups)
			slots[group.frame] = -1;
		groups.sort((a, b) => b.total - a.total || a.frame - b.frame);
		let start = parent.start;
		for (const group of groups) {
			group.start = start;
			start += group.total;
		}
		return groups;
	}

	childrenOf(node) {
		if (node.children)
			return node.children;
		const {parent} = this.profile, nodes = [], weights = [];
		for (let k = 0; k < node.nodes.length; k++) {
			const caller = parent[node.nodes[k]];
			if (caller) {
				nodes.push(caller);
				weights.push(node.weights[k]);
			} else {
				node.self += node.weights[k]; // nobody calls it: the outermost frame
			}
		}
		node.nodes = node.weights = null;
		return node.children = this.group(node, nodes, weights);
	}

	visit(node, least, visit) {
		if (node.total < least)
			return;
		visit(node);
		for (const child of this.childrenOf(node)) {
			if (child.total < least)
				break;
			this.visit(child, least, visit);
		}
	}

	frameOf(node) { return node.frame; }
	totalOf(node) { return node.total; }
	selfOf() { return null; }
	startOf(node) { return node.start; }
	depthOf(node) { return node.depth; }
	parentOf(node) { return node.parent; }
}

// A test for names: the text anywhere in it, whatever its case, or a regular expression. null: matches
// nothing and everything; throws SyntaxError.
function matcher(text, regex) {
	if (!text)
		return null;
	if (regex) {
		const expression = new RegExp(text, 'i');
		return name => expression.test(name);
	}
	const lower = text.toLowerCase();
	return name => name.toLowerCase().includes(lower);
}
