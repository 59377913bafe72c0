"""HTML, pictures and progress for notebooks (``_repr_html_``). Loads when a notebook asks for the first of them."""
