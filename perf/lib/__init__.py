"""What several families of perf/ use: how programs are asked and run, files that are whole, and judgement of times. Knows no
family."""
