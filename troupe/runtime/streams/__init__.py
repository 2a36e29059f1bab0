"""Redis: connection, streams, step ledger, events, fencing. The only room that knows key names."""
