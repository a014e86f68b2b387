#!/usr/bin/env -S python3 -B
"""node runs a script with worker threads: JSON, zlib and crypto (native mallocs), buffers that change threads."""

from program_test import ProgramTest

PROGRAM = r"""
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const zlib = require('zlib'), crypto = require('crypto'), fs = require('fs'), path = require('path');

function work(seed, rounds) {
    const hash = crypto.createHash('sha256');
    for (let round = 0; round < rounds; round++) {
        const rows = [];
        for (let i = 0; i < 2000; i++) {
            seed = (seed * 1103515245 + 12345) % 2147483648;
            const list = new Array(seed % 9).fill(seed);
            rows.push({ id: i, name: 'n' + seed, list, deep: { round, text: 'x'.repeat(seed % 60) } });
        }
        const text = JSON.stringify(JSON.parse(JSON.stringify(rows)).sort((a, b) => a.name < b.name ? -1 : 1));
        const packed = zlib.deflateSync(text, { level: 1 + round % 6 });
        if (zlib.inflateSync(packed).toString() !== text) throw new Error('inflate');
        const cipher = crypto.createCipheriv('aes-256-cbc', Buffer.alloc(32, seed & 255), Buffer.alloc(16, round));
        hash.update(Buffer.concat([cipher.update(packed), cipher.final()]));
        hash.update(text.replace(/n(\d+)/g, (_, digits) => digits.length).slice(0, 5000));
    }
    return hash.digest('hex');
}

if (isMainThread) {
    const run = seed => new Promise((resolve, reject) => {
        const block = new Uint8Array(1 << 20).fill(seed);
        const worker = new Worker(__filename, { workerData: seed });
        worker.on('error', reject);
        worker.on('message', reply => resolve(`${seed} ${reply.hash} ${reply.block.reduce((a, b) => a + b, 0)}`));
        worker.postMessage(block, [block.buffer]);    // moved, not copied: freed by another thread than made it
    });
    (async () => {
        for (let wave = 0; wave < 3; wave++)    // workers that end and are replaced
            for (const line of await Promise.all([1, 2, 3, 4].map(n => run(wave * 10 + n)))) console.log(line);
        const files = Array.from({ length: 40 }, (_, i) => path.join(process.env.TMPDIR, `file${i}`));
        const content = i => crypto.pbkdf2Sync('password', `${i}`, 50, 5000 * i, 'sha1');
        await Promise.all(files.map((name, i) => fs.promises.writeFile(name, content(i))));
        const back = await Promise.all(files.map(name => fs.promises.readFile(name)));
        console.log(crypto.createHash('sha256').update(Buffer.concat(back)).digest('hex'));
        const zipped = await Promise.all(back.map(data => new Promise((resolve, reject) =>
            zlib.gzip(data.toString('hex'), (error, out) => error ? reject(error) : resolve(out.length)))));
        console.log(zipped.join(' '), work(99, 10));
    })();
} else {
    parentPort.once('message', block => {
        const hash = work(workerData, 12);
        parentPort.postMessage({ hash, block: block.map(byte => byte + 1) });
    });
}
"""

with ProgramTest("node") as test:
    (test.dir / "work.js").write_text(PROGRAM)
    test.both(["node", "work.js"], loaded=["node"])
