"""The client of servers that other tools run: requests, their streams, counters, what they mean."""
