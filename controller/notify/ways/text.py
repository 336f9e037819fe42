"""A message as plain text: for mails without HTML, and for chats."""

from __future__ import annotations

from controller.notify import labels
from controller.notify.language import translated
from controller.notify.ways.message import Message


def plain(message: Message) -> str:
    """Sentence, facts, advice and address, a block each."""
    said = message.said
    blocks = [said.lead, "\n".join(_row(label, value) for label, value in said.rows), "\n".join(said.advice)]
    return "\n\n".join(b for b in [*blocks, message.url] if b)


def footer(message: Message) -> str:
    """Where to choose what one is told."""
    if not message.settings_url:
        return ""
    return f"-- \n{translated(labels.FOOTER, message.language)}\n{message.settings_url}"


def _row(label: str, value: str) -> str:
    lines = value.split("\n")
    if len(lines) == 1:
        return f"{label}: {value}"
    return "\n".join([f"{label}:", *(f"  {line}" for line in lines)])
