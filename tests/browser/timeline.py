"""The timeline as a person sees it, and what stands in the store after what they did there. 14:28 in Shanghai."""

from __future__ import annotations

from controller.store.tables import Reservation
from tests.browser.visits import Visitor
from tests.console_scene import PASSWORD, Scene, at

C7 = "gpu-a01/c7"


class Timeline:
    """The timeline of the visitor's page: where an instant lies, and how a pointer moves."""

    def __init__(self, here: Visitor, path: str = "/timeline") -> None:
        self.here, self.page = here, here.sign_in("lin", PASSWORD, path)
        self.page.wait_for_selector(".tl[data-mounted]")

    def point(self, channel: str, when: str) -> tuple[float, float]:
        box = self.page.locator(f'.tl-row[data-channel="{channel}"] .lane').bounding_box()
        start, end = (int(self.page.get_attribute(".tl", f"data-{name}")) for name in ("from", "to"))
        return box["x"] + box["width"] * (at(when) - start) / (end - start), box["y"] + box["height"] / 2

    def drag(self, start: tuple[float, float], end: tuple[float, float], drop: bool = True) -> None:
        mouse = self.page.mouse
        mouse.move(*start)
        mouse.down()
        mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2, steps=4)
        mouse.move(*end, steps=4)
        if drop:
            mouse.up()


def booked(world: Scene, channel: str, holder: str) -> list[tuple[int, int]]:
    with world.store.read() as db:
        rows = db.query(Reservation).filter_by(channel_id=world.ids[channel], holder_id=world.ids[holder])
        return sorted((r.starts_at, r.ends_at) for r in rows if r.status in ("approved", "pending"))


def own(world: Scene) -> str:
    """A booking of lin's this evening, with a note and a participant."""
    with world.store.write() as db:
        row = db.query(Reservation).filter_by(holder_id=world.ids["lin"], status="pending").one()
        row.status, row.starts_at, row.ends_at = "approved", at("20:00"), at("22:00")
        row.channel_id, row.kind, row.model, row.preset = world.ids[C7], "model", "Qwen3-32B-Q4_K_M", None
        row.note, row.participants = "evaluation", [world.ids["maya"]]
        return str(row.id)
