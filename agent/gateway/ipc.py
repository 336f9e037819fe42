"""What agent and gateway say to each other: JSON lines over a Unix socket that the agent listens on.

The agent is away while it restarts; a gateway goes on with what it has and dials again. Every message is a whole
statement of its subject, so that a lost connection loses nothing.

agent -> gateway
    {"type": "table", "version": int, "clock": null | {"controller_ms": int, "boottime_ms": int, "boot_id"?: str},
     "settings": {"show_holders": str, "drain_seconds": float, "stop_timeout_seconds": float,
                  "gateway_linger_seconds"?: float, "limits"?: {name: [int, int]}},    at once: of all, with one key; 0: any
     "channels": [CHANNEL]}                       the route table, whole; sent on connect and on every change
    {"type": "clock", "controller_ms": int | null, "boottime_ms": int | null, "boot_id"?: str}    a newer measurement
    {"type": "keys", "keys": {sha256: {"id", "user_id", "user_name", "role", "expires_at_ms"}}}     whole
    {"type": "close", "channel": str, "barrier": str}      close it to new requests, then answer `closed`
    {"type": "cut", "channel": str, "retry_after": int}    the drain is over: end what still runs
    {"type": "others", "channels": {name: int}, "callers": CALLERS, "gateways": int}
                                                  what runs in the other gateway processes together, and how many there are;
                                                  where there are several, and once when there no longer are
    {"type": "figures", "text": str}              the agent's part of /metrics, whole; forgotten when the agent is away
    {"type": "directory", "as_of_ms": null | int, "places": [PLACE], "members": hex}     what other nodes serve, whole; as of
                                                  when, where the controller is not reached since; which nodes may relay
                                                  (protos Directory), "": whoever has a certificate
    {"type": "usage_taken", "ids": [str]}                  usage rows the agent has written down

gateway -> agent
    {"type": "hello", "pid": int, "gateway_id": str, "version": str}
    {"type": "closed", "channel": str, "barrier": str, "in_flight": int}
    {"type": "in_flight", "channels": {name: int}, "callers"?: CALLERS}     whole; on change, at once while a channel is
                                                                           closed; callers: on channels with a limit
    {"type": "usage", "fields": [str], "rows": [[...]]}    as protos UsageRow, kept until taken

CALLERS = {name: [[user, key, int]]}                       running requests; 0: waits for a place

PLACE = {"node", "channel", "url", "relay", "model", "preset": null | str, "ready": bool, "from_ms": int,
         "until_ms": int (0: not known), "windows": [{"kind", "holder_id", "participant_ids", "start", "end"}]}

CHANNEL = {"name": str,
    "open": bool,                     false: draining, stopping, freeing; nothing new is let in
    "phase": str,
    "serving": null | {"identity", "model", "preset", "launch_id", "socket": path | null, "host": str, "port": int,
                       "engine_key": str, "served_name": str},     only while the engine is ready
    "loading": null | {"identity", "model", "preset", "ready_at_ms": int},   estimate; overdue when in the past
    "fallback": bool,
    "switching": null | {"identity": str, "retry_drain": bool, "ready_at_ms": int},     where a switch goes
    "failure": null | {"reason", "category", "retry_at_ms"},
    "blocked": null | str,            who holds the GPU, in words
    "steps": [{"at", "target": null | {"identity", "model", "preset", "load_seconds"?}, "why", "fallback": null | {...},
               "reservation_id", "prepares_for": int | null,
               "access": null | {"reservation_id", "kind", "holder_id", "participant_ids", "holder_name", "start", "end"}}]}

The same table, keys and directory are in `<state>/gateway` (table.json, keys.json, directory.json; 0600, written whole),
so that a gateway that starts while the agent is away serves from them.
"""
