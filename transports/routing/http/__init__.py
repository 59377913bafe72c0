"""Downloads over HTTP, behind one address guard."""
