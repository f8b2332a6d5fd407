"""What stands between the network and the routes: keys, hosts, origins, bodies, times, the request log."""
