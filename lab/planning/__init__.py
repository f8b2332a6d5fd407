"""`lead plan`: measures two models on this machine, and predicts which arrangement of them is fastest."""
