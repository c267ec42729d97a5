// Live filters as node-redis sees them: both versions of the protocol, pipelines, transactions.
//
// Usage: node resp_client.mjs FOLDER PORT    FOLDER has node_modules/redis

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const [folder, port] = process.argv.slice(2);
const { createClient } = createRequire(resolve(folder, "package.json"))("redis");

for (const RESP of [2, 3]) {
  const client = createClient({ socket: { port: Number(port) }, database: RESP, RESP });
  client.on("error", (error) => {
    throw error;
  });
  await client.connect();
  assert.equal(await client.ping(), "PONG");
  assert.equal(await client.bf.reserve("bf", 0.01, 1000), "OK");
  assert.equal(await client.bf.add("bf", "a"), true);
  assert.equal(await client.bf.add("bf", "a"), false);
  assert.deepEqual(await client.bf.mAdd("bf", ["a", "b"]), [false, true]);
  assert.deepEqual(await client.bf.mExists("bf", ["a", "x"]), [true, false]);
  assert.equal(await client.bf.card("bf"), 2);
  assert.equal((await client.bf.info("bf"))["Number of items inserted"], 2);
  assert.equal(await client.cf.add("cf", "a"), true);
  assert.equal(await client.cf.addNX("cf", "a"), false);
  assert.equal(await client.cf.count("cf", "a"), 1);
  assert.equal(await client.cf.del("cf", "a"), true);
  assert.equal(await client.cf.exists("cf", "a"), false);
  assert.equal(await client.sAdd("s", ["1", "2", "3"]), 3);
  assert.deepEqual((await client.smIsMember("s", ["1", "x"])).map(Number), [1, 0]);
  assert.equal(await client.sRem("s", ["1", "x"]), 1);
  // What is sent in one turn of the loop goes out as one pipeline.
  const added = await Promise.all([...Array(5000).keys()].map((id) => client.sAdd("p", `${id >> 1}`)));
  assert.equal(added.reduce((sum, one) => sum + one), 2500);
  assert.deepEqual(await client.multi().sAdd("t", "1").sAdd("t", "1").sCard("t").exec(), [1, 0, 1]);
  const names = [];
  for await (const some of client.scanIterator()) names.push(...some);
  assert.deepEqual(names.sort(), ["bf", "cf", "p", "s", "t"]);
  await assert.rejects(client.bf.add("s", "x"), /WRONGTYPE/);
  assert.equal(await client.del(names), 5);
  await client.close();
}
console.log("passed");
