"""What is measured: a study is a question, its measurements and what its report says."""
