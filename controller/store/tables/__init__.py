"""The tables. Instants are integer milliseconds (BIGINT): one sortable form that SQLite and PostgreSQL both have.

Every row that people know by name has an opaque text id (`new_id`, sortable by time of creation). The overlap rule of
reservations is the database's own: triggers on SQLite, an exclusion constraint on PostgreSQL (migrations create them).
"""

from controller.store.tables.base import Base, new_id, sorted_text
from controller.store.tables.bookings import HOLDING, RAN, Preset, Reservation, Series, SlotWatch, holding
from controller.store.tables.fleet import Channel, Command, JoinToken, Node, NodeModel
from controller.store.tables.history import Audit, ChannelDay, ChannelState, Load, StateDay, Usage, UsageDay
from controller.store.tables.leading import Leader, Revision
from controller.store.tables.notices import Notification, NotificationTarget, Outbox
from controller.store.tables.people import ApiKey, SecretLink, User, WebSession

__all__ = [
    "HOLDING",
    "RAN",
    "ApiKey",
    "Audit",
    "Base",
    "Channel",
    "ChannelDay",
    "ChannelState",
    "Command",
    "JoinToken",
    "Leader",
    "Load",
    "Node",
    "NodeModel",
    "Notification",
    "NotificationTarget",
    "Outbox",
    "Preset",
    "Reservation",
    "Revision",
    "SecretLink",
    "Series",
    "SlotWatch",
    "StateDay",
    "Usage",
    "UsageDay",
    "User",
    "WebSession",
    "holding",
    "new_id",
    "sorted_text",
]
