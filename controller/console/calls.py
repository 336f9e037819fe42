"""How a model is called: the same call for a shell, for the OpenAI clients, and as environment variables.

The key stands in no page: the snippets take it from the environment, and static/calls.js puts a key that has just been
made in its place, in the browser alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from controller.console import show

KEY = "SLOTSERVE_API_KEY"


@dataclass(frozen=True, slots=True)
class Snippet:
    """One tab."""

    key: str
    title: str
    text: str


def snippets(base_url: str, model: str, preset: str | None) -> tuple[Snippet, ...]:
    """For a channel's base URL; the model as a client names it."""
    name = f"{model}:{preset}" if preset else model
    url, said = json.dumps(base_url), json.dumps(name, ensure_ascii=False)
    python = f"""import os
from openai import OpenAI

client = OpenAI(
    base_url={url},
    api_key=os.environ["{KEY}"],
)
answer = client.chat.completions.create(
    model={said},
    messages=[{{"role": "user", "content": "Hello"}}],
)
print(answer.choices[0].message.content)"""
    javascript = f"""import OpenAI from "openai";

const client = new OpenAI({{
  baseURL: {url},
  apiKey: process.env.{KEY},
}});
const answer = await client.chat.completions.create({{
  model: {said},
  messages: [{{ role: "user", content: "Hello" }}],
}});
console.log(answer.choices[0].message.content);"""
    environment = f"""export OPENAI_BASE_URL={show.quoted(base_url)}
export OPENAI_API_KEY="${KEY}"
export OPENAI_MODEL={show.quoted(name)}"""
    return (
        Snippet("curl", "curl", show.curl(base_url, model, preset)),
        Snippet("python", "Python", python),
        Snippet("js", "JavaScript", javascript),
        Snippet("env", "", environment),
    )
