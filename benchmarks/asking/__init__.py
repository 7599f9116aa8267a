"""What to ask next, beside what else is done: language models on benchmarks, people in a survey."""
