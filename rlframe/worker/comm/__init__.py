"""What connects parallel collectors and learners with a coordinator: the same classes over every transport."""
