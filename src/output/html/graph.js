// SPDX-License-Identifier: MIT
// Draws a tree on a canvas. Only boxes of half a pixel or more are laid out, only rows in sight drawn.

const ROW = 20;
const LEAST = 0.5; // pixels
const SHADES = 5;
// Hue, saturation and lightness in light and dark, by kind.
const COLOURS = {
	lua: [214, 70, 74, 42, 58], jit: [142, 44, 66, 34, 50], inlined: [172, 42, 70, 36, 54],
	fast: [40, 82, 72, 52, 58], cfunction: [26, 72, 73, 46, 58], native: [48, 16, 80, 9, 58],
	kernel: [268, 48, 80, 30, 66], state: [342, 68, 79, 46, 66], error: [2, 78, 64, 62, 58],
	group: [215, 10, 86, 8, 46], compiler: [312, 46, 76, 32, 62], exit: [14, 60, 84, 38, 70],
};

function colour(kind, shade, dark) {
	const [hue, saturation, lightness, darkSaturation, darkLightness] = COLOURS[kind];
	const step = shade - (SHADES - 1) / 2;
	return dark ? `hsl(${hue + step} ${darkSaturation}% ${darkLightness + step * 1.6}%)` :
		`hsl(${hue + step} ${saturation}% ${lightness + step * 1.6}%)`;
}

function shadeOf(text) {
	let hash = 7;
	for (let i = 0; i < text.length && i < 64; i++)
		hash = (hash * 31 + text.charCodeAt(i)) | 0;
	return (hash >>> 3) % SHADES;
}

class Graph {
	constructor(profile, elements) {
		this.profile = profile;
		Object.assign(this, elements); // scroll, space, canvas, overlay
		this.context = this.canvas.getContext('2d', {alpha: false});
		this.top = this.overlay.getContext('2d');
		this.icicle = false;
		this.matched = null;
		this.dark = false;
		this.hovered = this.selected = null;
		// Colour of a frame: kind times shades.
		this.tint = profile.labels.map((label, i) => profile.kinds[i] * SHADES + shadeOf(label));
	}

	readTheme() {
		const style = getComputedStyle(document.documentElement);
		// Each kind's shades, and the same faint: outside of the zoom, and beside matches.
		const all = alpha => KINDS.flatMap(kind => Array.from({length: SHADES}, (_, shade) =>
			colour(kind.id, shade, this.dark).replace(')', `${alpha})`)));
		this.palettes = {plain: all(''), outside: all(' / 55%'), beside: all(' / 38%')};
		this.theme = Object.fromEntries(['back', 'panel', 'text', 'line', 'accent', 'match', 'mono']
			.map(name => [name, style.getPropertyValue(`--${name}`)]));
	}

	show(tree) {
		this.tree = tree;
		this.zoomed = tree.root;
		this.hovered = this.selected = null;
	}

	// Above the zoomed box its callers, as wide as all; below it what is wide enough.
	layout() {
		const {tree, zoomed} = this;
		const width = this.scroll.clientWidth;
		const total = tree.totalOf(zoomed);
		const rows = this.rows = [];
		const put = (node, x, w) => {
			const depth = tree.depthOf(node);
			const row = rows[depth] || (rows[depth] = {nodes: [], x: [], w: []});
			row.nodes.push(node);
			row.x.push(x);
			row.w.push(w);
		};
		this.width = width;
		this.scale = total ? width / total : 0;
		for (let node = tree.parentOf(zoomed); node !== null; node = tree.parentOf(node))
			put(node, 0, width);
		if (total) {
			const origin = tree.startOf(zoomed), scale = this.scale;
			tree.visit(zoomed, LEAST / scale, node =>
				put(node, (tree.startOf(node) - origin) * scale, tree.totalOf(node) * scale));
		} else {
			put(zoomed, 0, width);
		}
		this.resize();
	}

	resize() {
		const ratio = window.devicePixelRatio || 1;
		const full = this.rows.length * ROW;
		this.height = Math.max(this.scroll.clientHeight, ROW);
		this.full = Math.max(full, this.height);
		this.space.style.height = `${this.full}px`;
		for (const canvas of [this.canvas, this.overlay]) {
			const width = Math.round(this.width * ratio), height = Math.round(this.height * ratio);
			if (canvas.width !== width || canvas.height !== height) {
				canvas.width = width;
				canvas.height = height;
				canvas.style.width = `${this.width}px`;
				canvas.style.height = `${this.height}px`;
			}
		}
		this.overlay.style.marginTop = `${-this.height}px`;
	}

	// Top of a row in the whole graph.
	rowTop(depth) {
		return this.icicle ? depth * ROW : this.full - (depth + 1) * ROW;
	}

	// Scrolls to where the reading begins.
	rewind() {
		const top = this.rowTop(this.tree.depthOf(this.zoomed));
		const least = this.icicle ? top - 2 * ROW : top - this.height + 3 * ROW;
		this.scroll.scrollTop = Math.max(0, least);
	}

	reveal(node) {
		const top = this.rowTop(this.tree.depthOf(node)), scroll = this.scroll;
		if (top < scroll.scrollTop)
			scroll.scrollTop = top - ROW;
		else if (top + ROW > scroll.scrollTop + this.height)
			scroll.scrollTop = top + 2 * ROW - this.height;
	}

	*visibleRows() {
		const from = this.scroll.scrollTop;
		for (let depth = 0; depth < this.rows.length; depth++) {
			const y = this.rowTop(depth) - from;
			if (this.rows[depth] && y > -ROW && y < this.height)
				yield [this.rows[depth], y, depth];
		}
	}

	// Boxes are gathered by colour first: changing it is what costs.
	draw() {
		const context = this.context, ratio = window.devicePixelRatio || 1;
		const paint = new Map();
		const zoomedDepth = this.tree.depthOf(this.zoomed);
		this.drawnAt = this.scroll.scrollTop;
		context.setTransform(ratio, 0, 0, ratio, 0, 0);
		context.fillStyle = this.theme.back;
		context.fillRect(0, 0, this.width, this.height);
		for (const [row, y, depth] of this.visibleRows()) {
			const palette = this.matched ? 'beside' : depth < zoomedDepth ? 'outside' : 'plain';
			for (let i = 0; i < row.nodes.length; i++) {
				const fill = this.fillOf(row.nodes[i], this.palettes[palette]);
				let list = paint.get(fill);
				if (!list)
					paint.set(fill, list = []);
				list.push(row.x[i], y, row.w[i]);
			}
		}
		for (const [fill, list] of paint) {
			context.fillStyle = fill;
			for (let i = 0; i < list.length; i += 3) {
				const w = list[i + 2];
				context.fillRect(list[i], list[i + 1], w > 3 ? w - 1 : w, ROW - 1);
			}
		}
		this.drawTexts(context, zoomedDepth);
		this.drawMarks();
	}

	fillOf(node, palette) {
		const frame = this.tree.frameOf(node);
		if (frame < 0)
			return this.theme.line;
		return this.matched && this.matched[frame] ? this.theme.match : palette[this.tint[frame]];
	}

	drawTexts(context, zoomedDepth) {
		context.font = `12px ${this.theme.mono}`;
		context.textBaseline = 'middle';
		const letter = context.measureText('0').width;
		const plain = this.theme.text;
		for (const [row, y, depth] of this.visibleRows())
			for (let i = 0; i < row.nodes.length; i++) {
				if (row.w[i] < 26)
					continue;
				const frame = this.tree.frameOf(row.nodes[i]);
				const hit = this.matched && this.matched[frame];
				const faint = this.matched || depth < zoomedDepth || frame < 0;
				context.fillStyle = hit ? this.theme.panel :
					faint ? plain : '#16191d';
				const text = this.fit(context, this.textOf(row.nodes[i]), row.w[i] - 9, letter);
				if (text)
					context.fillText(text, row.x[i] + 4, y + ROW / 2);
			}
	}

	textOf(node) {
		const frame = this.tree.frameOf(node);
		if (frame >= 0)
			return this.profile.labels[frame];
		return this.tree.name ? `callers of ${this.tree.name}` : 'all';
	}

	// As much of a text as there is room for. The font is of one width, but not for every script.
	fit(context, text, room, letter) {
		const fits = Math.floor(room / letter);
		if (fits < 2)
			return '';
		let cut = text.length > fits ? `${text.slice(0, fits - 1)}\u2026` : text;
		if (/[^\x20-\x7e\u2026]/.test(cut))
			while (cut.length > 1 && context.measureText(cut).width > room)
				cut = `${Array.from(cut).slice(0, -2).join('')}\u2026`;
		return cut;
	}

	// Outlines of the box under the pointer and of the selected one.
	drawMarks() {
		const ratio = window.devicePixelRatio || 1;
		const context = this.top;
		context.setTransform(ratio, 0, 0, ratio, 0, 0);
		context.clearRect(0, 0, this.width, this.height);
		const mark = (node, stroke, width) => {
			const box = node === null ? null : this.boxOf(node);
			if (!box)
				return;
			context.strokeStyle = stroke;
			context.lineWidth = width;
			context.strokeRect(box.x + width / 2, box.y + width / 2,
				Math.max(box.w - width - 0.5, 1), ROW - 1 - width);
		};
		mark(this.hovered, this.theme.text, 1);
		mark(this.selected, this.theme.accent, 2.5);
	}

	boxOf(node) {
		const depth = this.tree.depthOf(node), row = this.rows[depth];
		const at = row ? row.nodes.indexOf(node) : -1;
		if (at < 0)
			return null;
		return {x: row.x[at], w: row.w[at], y: this.rowTop(depth) - this.scroll.scrollTop};
	}

	// The node at a point of the canvas, or null.
	at(x, y) {
		const whole = y + this.scroll.scrollTop;
		const depth = Math.floor(this.icicle ? whole / ROW : (this.full - whole) / ROW);
		const row = this.rows[depth];
		if (!row)
			return null;
		let low = 0, high = row.x.length;
		while (low < high) {
			const middle = (low + high) >> 1;
			if (row.x[middle] <= x)
				low = middle + 1;
			else
				high = middle;
		}
		return low && x <= row.x[low - 1] + Math.max(row.w[low - 1], 1) ? row.nodes[low - 1] : null;
	}

	// The node that an arrow leads to: towards callers, callees, or the neighbour in the row.
	neighbour(node, key) {
		const tree = this.tree, depth = tree.depthOf(node);
		const inward = this.icicle ? 'ArrowDown' : 'ArrowUp';
		if (key === 'ArrowLeft' || key === 'ArrowRight') {
			const row = this.rows[depth], at = row.nodes.indexOf(node);
			const next = row.nodes[at + (key === 'ArrowLeft' ? -1 : 1)];
			return next === undefined ? node : next;
		}
		if (key !== inward) {
			const parent = tree.parentOf(node);
			return parent === null ? node : parent;
		}
		let best = node, most = 0;
		for (const child of (this.rows[depth + 1] || {nodes: []}).nodes)
			if (tree.parentOf(child) === node && tree.totalOf(child) > most) {
				best = child;
				most = tree.totalOf(child);
			}
		return best;
	}
}
