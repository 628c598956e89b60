"""What a step and a cycle take: floors, fitted models, and speedups made of them."""
