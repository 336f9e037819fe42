"""Booking as everybody does it (REST, console): look at the wish, apply the rules, write it guarded, say what is in the way.

`view` reads one channel for a wish; `act` makes, changes and decides bookings; `free` finds the nearest free windows.
"""
