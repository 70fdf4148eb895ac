// SPDX-License-Identifier: MIT
// What node.py runs: prints one JSON object, "results" for comparison and "rates".
'use strict';
const { Worker, MessageChannel, isMainThread, parentPort, workerData, threadId } =
	require('worker_threads');
const { spawn, fork, execFile } = require('child_process');
const { pipeline } = require('stream/promises');
const crypto = require('crypto');
const fs = require('fs');
const http = require('http');
const net = require('net');
const os = require('os');
const path = require('path');
const zlib = require('zlib');

const scale = Number(process.env.SCALE || 1);

if (!isMainThread) {
	// A worker: answers each message; on a port of its own if it is given one.
	const answer = (port) => port.on('message', (m) => {
		if (m && m.port) {
			answer(m.port);
			parentPort.postMessage('ready');
		} else if (m === 'burst') {
			for (let i = 0; i < workerData.burst; i++)
				port.postMessage(i);
		} else {
			port.postMessage(m);
		}
	});
	answer(parentPort);
} else if (process.argv[2] === 'child') {
	// A child with a channel to its parent.
	process.on('message', (m) => {
		if (m.end)
			process.disconnect();
		else
			process.send({ n: m.n * 2, text: m.text });
	});
} else {
	main().catch((e) => {
		console.error(e);
		process.exit(1);
	});
}

function next(emitter, event) {
	return new Promise((resolve) => emitter.once(event, resolve));
}

async function messages(results, rates) {
	const pings = 4000 * scale, burst = 20000 * scale, count = 3;
	const workers = [];
	for (let i = 0; i < count; i++)
		workers.push(new Worker(__filename, { workerData: { burst } }));

	// One message there and back at a time: every one of them is two wakes.
	let began = process.hrtime.bigint();
	await Promise.all(workers.map(async (w, k) => {
		for (let i = 0; i < pings; i++) {
			const back = next(w, 'message');
			w.postMessage(i * 10 + k);
			if (await back !== i * 10 + k)
				throw new Error('ping: another message came back');
		}
	}));
	rates.pings = count * pings * 1e9 / Number(process.hrtime.bigint() - began);

	// As fast as they can, from all of them at once: all must come, in each one's order.
	began = process.hrtime.bigint();
	results.bursts = await Promise.all(workers.map((w) => new Promise((resolve, reject) => {
		let expected = 0;
		const hear = (m) => {
			if (m !== expected++)
				reject(new Error(`burst: ${m} instead of ${expected - 1}`));
			if (expected === burst) {
				w.off('message', hear);
				resolve(expected);
			}
		};
		w.on('message', hear);
		w.postMessage('burst');
	})));
	rates.bursts = count * burst * 1e9 / Number(process.hrtime.bigint() - began);

	// Two workers' ports, through a channel of their own.
	const { port1, port2 } = new MessageChannel();
	const ready = next(workers[0], 'message');
	workers[0].postMessage({ port: port2 }, [port2]);
	await ready;
	let sum = 0;
	for (let i = 0; i < pings / 4; i++) {
		const back = next(port1, 'message');
		port1.postMessage({ i, data: new Uint8Array(100).fill(i) });
		const m = await back;
		sum += m.i + m.data[50];
	}
	results.channel = sum;
	port1.close();

	// Workers that come and go.
	let exits = 0;
	for (let i = 0; i < 10 * scale; i++) {
		const w = new Worker('process.exit(3)', { eval: true });
		exits += await next(w, 'exit');
	}
	results.exits = exits;
	results.terminated = await Promise.all(workers.map((w) => w.terminate()));
}

async function children(results) {
	const outputs = await Promise.all([...Array(12).keys()].map((i) => new Promise((resolve) =>
		execFile('sh', ['-c', `cat; echo ${i}; exit ${i}`], (error, stdout) =>
			resolve([error ? error.code : 0, stdout])).stdin.end(`in ${i}\n`))));
	results.children = outputs;

	// Much data through a child that only passes it on.
	const data = Buffer.alloc(3000000, 'pollux');
	const cat = spawn('cat');
	const hash = crypto.createHash('sha256');
	cat.stdin.end(data);
	for await (const part of cat.stdout)
		hash.update(part);
	results.cat = hash.digest('hex') === crypto.createHash('sha256').update(data).digest('hex');

	const child = fork(__filename, ['child']);
	let sum = 0;
	for (let n = 0; n < 300 * scale; n++) {
		const back = next(child, 'message');
		child.send({ n, text: 'x'.repeat(n) });
		const m = await back;
		sum += m.n + m.text.length;
	}
	child.send({ end: true });
	results.fork = [sum, await next(child, 'exit')];
	const killed = spawn('sleep', ['60']);
	killed.kill('SIGTERM');
	results.killed = await new Promise((r) => killed.on('exit', (code, sig) => r([code, sig])));
}

function get(port, agent, url, body) {
	return new Promise((resolve, reject) => {
		const options = { host: '127.0.0.1', port, agent, path: url, method: body ? 'POST' : 'GET' };
		const r = http.request(options, (answer) => {
			const hash = crypto.createHash('md5');
			answer.on('data', (d) => hash.update(d));
			answer.on('end', () => resolve(hash.digest('hex')));
			answer.on('error', reject);
		});
		r.on('error', reject);
		r.end(body);
	});
}

async function web(results, rates) {
	const server = http.createServer((request, response) => {
		const hash = crypto.createHash('md5');
		request.on('data', (d) => hash.update(d));
		request.on('end', () => {
			if (request.method === 'POST')
				response.end(hash.digest('hex'));
			else
				response.end(request.url.repeat(Number(request.url.split('=')[1])));
		});
	});
	server.listen(0, '127.0.0.1');
	await next(server, 'listening');
	const port = server.address().port;
	const requests = 400 * scale, clients = 8;
	for (const keepAlive of [true, false]) {
		const agent = new http.Agent({ keepAlive });
		const all = crypto.createHash('md5');
		const began = process.hrtime.bigint();
		const sums = await Promise.all([...Array(clients).keys()].map(async (k) => {
			const mine = [];
			for (let i = 0; i < requests; i++)
				mine.push(await get(port, agent, `/${k}/${i}?n=${(i % 100) * 10}`,
					i % 4 ? null : Buffer.alloc(i * 50, String(k))));
			return mine.join();
		}));
		const name = keepAlive ? 'keep-alive' : 'connections';
		rates[name] = clients * requests * 1e9 / Number(process.hrtime.bigint() - began);
		results[name] = all.update(sums.join()).digest('hex');
		agent.destroy();
	}
	server.close();
	await next(server, 'close');
}

async function rest(results) {
	// The thread pool: each result comes back through a wake of the loop.
	const keys = await Promise.all([...Array(60 * scale).keys()].map((i) => new Promise(
		(resolve, reject) => crypto.pbkdf2(`p${i}`, 's', 200, 16, 'sha256',
			(e, key) => e ? reject(e) : resolve(key.toString('hex'))))));
	results.pool = crypto.createHash('md5').update(keys.join()).digest('hex');

	const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'pollux-node.'));
	const file = path.join(dir, 'file'), copy = path.join(dir, 'copy');
	const data = crypto.createHash('sha512').update('seed').digest();
	fs.writeFileSync(file, Buffer.alloc(2000000, data));
	await pipeline(fs.createReadStream(file), zlib.createGzip(), zlib.createGunzip(),
		fs.createWriteStream(copy));
	results.files = fs.readFileSync(file).equals(fs.readFileSync(copy));
	const watcher = fs.watch(dir);
	const changed = next(watcher, 'change');
	fs.writeFileSync(path.join(dir, 'new'), 'x');
	results.watch = typeof await changed;
	watcher.close();

	// A socket of the file system, and signals to itself.
	const server = net.createServer((s) => s.pipe(s));
	server.listen(path.join(dir, 'socket'));
	await next(server, 'listening');
	const s = net.connect(path.join(dir, 'socket'));
	let echo = '';
	s.on('data', (d) => { echo += d; });
	for (let i = 0; i < 200; i++)
		s.write(`line ${i}\n`);
	s.end();
	await next(s, 'close');
	server.close();
	results.socket = crypto.createHash('md5').update(echo).digest('hex');
	fs.rmSync(dir, { recursive: true });
	// Listening for a signal does not keep a loop alive; a timer does.
	const alive = setInterval(() => {}, 1000);
	let signals = 0;
	for (let i = 0; i < 30; i++) {
		const heard = next(process, 'SIGUSR2');
		process.kill(process.pid, 'SIGUSR2');
		await heard;
		signals++;
	}
	results.signals = signals;
	clearInterval(alive);

	// Timers: each fires once and not before its time, in the order of their times. Those depend
	// on when each was set, which may be long after the one before. Zero counts as one.
	const fired = [];
	await Promise.all([40, 5, 20, 1, 60].map((ms) => new Promise((resolve) => {
		const timer = { ms, before: performance.now() };
		setTimeout(() => {
			fired.push({ ...timer, waited: performance.now() - timer.before });
			resolve();
		}, ms === 1 ? 0 : ms);
		timer.after = performance.now();
	})));
	const wrong = [];
	for (const [i, t] of fired.entries()) {
		for (const u of fired.slice(i + 1))
			if (t.before + t.ms - 1 > u.after + u.ms)
				wrong.push([t, u]);
		if (t.waited < t.ms - 1)
			wrong.push(t);
	}
	results.timers = [fired.map((t) => t.ms).sort((a, b) => a - b), wrong];
}

async function main() {
	const results = {}, rates = {};
	const maps = fs.readFileSync('/proc/self/maps', 'utf8');
	results.thread = threadId;
	await messages(results, rates);
	await web(results, rates);
	await rest(results);
	await children(results);
	// After the children: what was turned into kernel objects goes on, and new ones work.
	const after = {};
	await messages(results, after);
	rates.pings_after_children = after.pings;
	console.log(JSON.stringify({ results, rates, mapped: maps.includes('libpollux-preload') }));
}
