"""What programs are: sizes, types, the graph level, the loop level, their text, and their meaning."""
