// SPDX-License-Identifier: MIT
// pprof_read.mjs FILE JSON FOLDED...: reads pprof files with npm's pprof-format, and holds every stack against
// those of the same profile as json (every member of every frame) and as folded (the text of every frame).
import {readFileSync} from 'node:fs';
import {basename} from 'node:path';
import {gunzipSync} from 'node:zlib';
import {Profile} from 'pprof-format';

let failed = 0;

function check(what, good, detail = '') {
	if (good)
		return;
	console.log(`FAILED: ${what}: ${detail}`);
	failed++;
}

// JSON has its own escape for control characters, the text rule another.
const plain = text => (text ?? '').replace(/[\x00-\x1f\x7f]/g,
	c => `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`);
const add = (map, key, count) => map.set(key, (map.get(key) ?? 0n) + BigInt(count));

function compare(what, ours, theirs) {
	check(`${what}: number of stacks`, ours.size === theirs.size, `${ours.size} ${theirs.size}`);
	let shown = 0;
	for (const [key, count] of theirs)
		if (ours.get(key) !== count && shown++ < 3)
			check(what, false, `${count} expected, ${ours.get(key)}: ${key.slice(0, 600)}`);
}

function read(file) {
	const profile = Profile.decode(gunzipSync(readFileSync(file)));
	const text = n => profile.stringTable.strings[Number(n)];
	const index = list => new Map(list.map(item => [Number(item.id), item]));
	const functions = index(profile.function), mappings = index(profile.mapping);
	const locations = index(profile.location);
	// Frames of a location, innermost first.
	const frames = id => locations.get(Number(id)).line.map((line, i, lines) => {
		const location = locations.get(Number(id)), f = functions.get(Number(line.functionId));
		const mapping = mappings.get(Number(location.mappingId));
		return {text: text(f.name), name: text(f.systemName), file: text(f.filename),
			defined: Number(f.startLine), line: Number(line.line), address: BigInt(location.address),
			object: mapping ? text(mapping.filename) : '', inlined: i + 1 < lines.length};
	});
	return {profile, text, samples: profile.sample.map(sample => ({
		stack: sample.locationId.flatMap(frames).reverse(),
		count: BigInt(sample.value[0]), ns: BigInt(sample.value[1]),
		labels: Object.fromEntries(sample.label.map(l => [text(l.key), l.str ? text(l.str) : Number(l.num)])),
	}))};
}

const NO_FRAMES = {kind: 'error', name: '[error: no frames]'};

function compareJson(file, {samples}, json) {
	const ours = new Map(), theirs = new Map();
	const key = (labels, frames) => JSON.stringify([labels, frames]);
	for (const {stack, count, labels} of samples)
		add(ours, key([labels.pid, labels.tid ?? 0, labels.kind, labels.trace ?? 0], stack.map(f =>
			[f.name, f.file, f.defined, f.line, `${f.address}`, basename(f.object) || f.object])), count);
	for (const {pid, tid, count, frames} of json.stacks) {
		const all = frames.length ? frames : [NO_FRAMES], leaf = all.at(-1);
		add(theirs, key([pid, tid, leaf.kind, leaf.trace ?? 0], all.map(f => [plain(f.name), plain(f.file),
			f.defined ?? 0, f.line ?? 0, `${BigInt(f.address ?? 0)}`,
			basename(plain(f.object)) || plain(f.object)])), count);
	}
	compare(`${file}, as json`, ours, theirs);
	const names = new Map(json.names.map(n => [`${n.pid} ${n.tid}`, plain(n.name)]));
	const wrong = samples.find(({labels: l}) => (l.process ?? '') !== (names.get(`${l.pid} 0`) ?? '') ||
		l.tid && (l.thread ?? '') !== (names.get(`${l.pid} ${l.tid}`) ?? ''));
	check(`${file}: names of threads`, !wrong, JSON.stringify(wrong?.labels));
}

// In folded files the root is the process, where there are several.
function compareFolded(file, {samples}, folded) {
	const ours = new Map(), theirs = new Map();
	const several = new Set(samples.map(s => s.labels.pid)).size > 1;
	for (const line of folded.split('\n').slice(0, -1)) {
		const at = line.lastIndexOf(' ');
		add(theirs, line.slice(several ? line.indexOf(';') + 1 : 0, at), line.slice(at + 1));
	}
	for (const {stack, count} of samples)
		add(ours, stack.map(f => f.text.replaceAll(';', '\\x3b')).join(';'), count);
	compare(`${file}, as folded`, ours, theirs);
}

// Is any frame within the compiled code of its caller?
const isInlined = json => json.stacks.some(({frames}) => frames.some((f, i) => f.kind === 'inlined' && i &&
	/^(jit|inlined)$/.test(frames[i - 1].kind) && frames[i - 1].trace === f.trace));

function compareOne(path, jsonPath, foldedPath) {
	const file = basename(path), found = read(path), json = JSON.parse(readFileSync(jsonPath));
	compareJson(file, found, json);
	compareFolded(file, found, readFileSync(foldedPath, 'utf8'));
	const inlined = found.samples.some(({stack}) => stack.some(f => f.inlined));
	check(`${file}: inlined frames`, inlined || !isInlined(json));
	check(`${file}: the quality line`, /samples in .* lost, .* whole stacks/.test(
		found.text(found.profile.comment[0])), found.text(found.profile.comment[0]));
	if (file.startsWith('server'))
		checkServer(found);
	console.log(`${file}: ${found.samples.length} stacks, ${found.profile.mapping
		.map(m => `${found.text(m.filename).slice(0, 40)} ${found.text(m.buildId).slice(0, 8)}`)
		.slice(0, 4).join(', ')}`);
}

function checkServer({profile, text, samples}) {
	const mapping = profile.mapping[0];
	check('server: the program is first', text(mapping.filename) === '/usr/sbin/nginx', text(mapping.filename));
	check('server: build id', text(mapping.buildId) === '0a1b2c3d4e5f60718293a4b5c6d7e8f901234567');
	check('server: time', BigInt(profile.timeNanos) === 1772368496n * 1000000000n, profile.timeNanos);
	check('server: duration', Number(profile.durationNanos) === 30e9, profile.durationNanos);
	check('server: samples', samples.reduce((sum, s) => sum + s.count, 0n) === 2282n);
	const escape = samples.filter(({stack}) => stack.at(-1).name === 'escape');
	check('server: escape, in two lines', escape.map(s => s.stack.at(-1).line).sort().join() === '80,81');
	check('server: escape is inlined', escape.every(({stack}) => stack.at(-1).inlined && !stack.at(-2).inlined &&
		stack.at(-2).name === 'encode' && stack.at(-1).file === 'app/json.lua' && stack.at(-1).defined === 77));
}

const args = process.argv.slice(2);
for (let i = 0; i < args.length; i += 3)
	compareOne(args[i], args[i + 1], args[i + 2]);
console.log(failed ? `${failed} failed` : 'ok');
process.exit(failed ? 1 : 0);
