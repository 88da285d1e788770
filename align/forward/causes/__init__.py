"""What would explain a fault, and whether the change mends it when tried."""
