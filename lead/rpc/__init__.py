"""RPC: layers of a model on other machines, and `lead rpc-worker`."""
