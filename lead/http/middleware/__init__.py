"""Middleware between the network and the routes: keys, hosts, origins, bodies, timeouts, access log."""
