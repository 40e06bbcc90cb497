// SPDX-License-Identifier: MIT
// speedscope_read.mjs FILE JSON...: validates speedscope files by speedscope's own schema, opens them in
// speedscope's own page in headless Chromium, has it export what it has understood, and holds that against the
// same profile as json.
import {readFileSync, writeFileSync} from 'node:fs';
import {basename, dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import Ajv from 'ajv';
import {chromium} from 'playwright-core';

const release = join(dirname(fileURLToPath(import.meta.url)), 'node_modules/speedscope/dist/release');
const ajv = new Ajv({strict: false});
const isValid = ajv.compile(JSON.parse(readFileSync(join(release, 'file-format-schema.json'))));
let failed = 0;

function check(what, good, detail = '') {
	if (good)
		return;
	console.log(`FAILED: ${what}: ${String(detail).slice(0, 1000)}`);
	failed++;
}

// The page takes a profile from a script that hands it over, as speedscope's own command does.
async function open(browser, file) {
	const page = await browser.newPage({viewport: {width: 1000, height: 700}, acceptDownloads: true});
	const script = `${file}.js`, name = JSON.stringify(basename(file));
	page.said = [];
	page.errors = [];
	page.on('console', message => page.said.push(message.text()));
	page.on('pageerror', error => page.errors.push(String(error)));
	page.on('dialog', dialog => { page.errors.push(dialog.message()); dialog.dismiss(); });
	writeFileSync(script, `speedscope.loadFileFromBase64(${name}, "${readFileSync(file).toString('base64')}")`);
	await page.goto(`file://${release}/index.html#localProfilePath=${script.slice(1)}`);
	return page;
}

async function exported(page, file) {
	await page.waitForFunction(() => !document.title.startsWith('speedscope'), null, {timeout: 30000});
	const download = page.waitForEvent('download', {timeout: 30000});
	await page.keyboard.press('Control+s');
	await (await download).saveAs(`${file}.back`);
	return JSON.parse(readFileSync(`${file}.back`));
}

// Weight of each stack of a profile that tells when frames begin and end.
function stacksOf(frames, profile) {
	const stacks = new Map(), open = [];
	let last = 0;
	for (const {type, frame, at} of profile.events) {
		if (at > last && open.length)
			stacks.set(open.join('\n'), (stacks.get(open.join('\n')) ?? 0) + at - last);
		last = at;
		if (type === 'O')
			open.push(textOf(frames[frame]));
		else
			open.pop();
	}
	return stacks;
}

// The same of one that has samples.
function samplesOf(frames, profile) {
	const stacks = new Map();
	profile.samples.forEach((sample, i) => {
		const key = sample.map(id => textOf(frames[id])).join('\n');
		stacks.set(key, (stacks.get(key) ?? 0) + profile.weights[i]);
	});
	return stacks;
}

const textOf = frame => JSON.stringify([frame.name, frame.file ?? '', frame.line ?? 0]);
const sum = map => [...map.values()].reduce((a, b) => a + b, 0);

function compareProfile(what, ours, theirs) {
	let shown = 0;
	check(`${what}: number of stacks`, ours.size === theirs.size, `${ours.size} ${theirs.size}`);
	for (const [stack, weight] of ours)
		if (Math.abs((theirs.get(stack) ?? 0) - weight) > 1e-6 && shown++ < 2)
			check(what, false, `${weight} written, ${theirs.get(stack)} read: ${stack}`);
}

// Samples of each process, or thread, by both.
function compareCounts(file, profile, json) {
	const counts = new Map(), threads = /^thread/.test(profile.profiles[0].name);
	for (const {pid, tid, count} of json.stacks)
		counts.set(threads ? `${pid} ${tid}` : pid, (counts.get(threads ? `${pid} ${tid}` : pid) ?? 0) + count);
	const expected = [...counts.values()].map(n => (n / json.quality.rate).toFixed(6)).sort();
	const have = profile.profiles.map(p => p.weights.reduce((a, b) => a + b, 0).toFixed(6)).sort();
	check(`${file}: samples of each profile`, expected.join() === have.join(), `${expected} ${have}`);
	for (const p of profile.profiles) {
		check(`${file}: unit`, p.unit === 'seconds' && p.type === 'sampled' && p.startValue === 0);
		check(`${file}: a weight a sample`, p.weights.length === p.samples.length);
		check(`${file}: end`, Math.abs(p.endValue - p.weights.reduce((a, b) => a + b, 0)) < 1e-6);
		check(`${file}: frames`, p.samples.every(s => s.length && s.every(id => profile.shared.frames[id])));
	}
	check(`${file}: active profile`, profile.activeProfileIndex < profile.profiles.length);
}

async function compareOne(browser, path, jsonPath) {
	const file = basename(path), profile = JSON.parse(readFileSync(path, 'utf8'));
	check(`${file}: schema`, isValid(profile), JSON.stringify(isValid.errors));
	compareCounts(file, profile, JSON.parse(readFileSync(jsonPath)));
	const page = await open(browser, path), back = await exported(page, path);
	check(`${file}: imported as what it is`, page.said.includes('Importing as speedscope json file'), page.said);
	check(`${file}: no errors`, page.errors.length === 0, page.errors);
	check(`${file}: nothing injected`, await page.evaluate(() => window.injected === undefined));
	check(`${file}: number of profiles`, back.profiles.length === profile.profiles.length, back.profiles.length);
	check(`${file}: names`, back.profiles.map(p => p.name).join() === profile.profiles.map(p => p.name).join());
	profile.profiles.forEach((p, i) => compareProfile(`${file}, profile ${i}`,
		samplesOf(profile.shared.frames, p), stacksOf(back.shared.frames, back.profiles[i])));
	if (process.env.SHOTS)
		await page.screenshot({path: join(process.env.SHOTS, `${file}.png`)});
	await page.close();
	const total = profile.profiles.reduce((s, p) => s + sum(samplesOf(profile.shared.frames, p)), 0);
	console.log(`${file}: ${profile.profiles.length} profiles, ${profile.shared.frames.length} frames, ` +
		`${total.toFixed(1)} s`);
}

const browser = await chromium.launch({executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
	args: ['--no-sandbox', '--disable-quic', '--no-first-run', '--disable-background-networking',
		'--disable-component-update', '--disable-sync', '--allow-file-access-from-files']});
try {
	const args = process.argv.slice(2);
	for (let i = 0; i < args.length; i += 2)
		await compareOne(browser, args[i], args[i + 1]);
} finally {
	await browser.close();
}
console.log(failed ? `${failed} failed` : 'ok');
process.exit(failed ? 1 : 0);
