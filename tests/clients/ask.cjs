// The official JavaScript client, asked line by line: a request as JSON on stdin, what came of it as JSON on stdout.
// node ask.cjs PATH_OF_THE_OPENAI_PACKAGE
const { createInterface } = require("node:readline");
const OpenAI = require(process.argv[2]);

async function ask({ base, key, retries, method, path, body, stream }) {
  const client = new OpenAI({ baseURL: base, apiKey: key, maxRetries: retries, timeout: 30000 });
  const begun = performance.now();
  const said = { events: 0 };
  try {
    if (path) {
      await client[method](path, body ? { body } : {});
    } else if (stream) {
      for await (const _ of await client.chat.completions.create({ ...body, stream: true })) said.events += 1;
    } else {
      said.text = (await client.chat.completions.create(body)).choices[0].message.content;
    }
  } catch (error) {
    said.error = error.constructor.name;
    for (const name of ["status", "code", "type", "param", "message"]) said[name] = error[name] ?? null;
    said.request_id = error.requestID ?? null;
    said.retry_after = error.headers?.get?.("retry-after") ?? null;
  }
  said.seconds = (performance.now() - begun) / 1000;
  return said;
}

createInterface({ input: process.stdin }).on("line", async (line) => {
  console.log(JSON.stringify(await ask(JSON.parse(line))));
});
