"""Which replica answers a request: choice, admission, failover and the ports that episodes call."""
