int x; /* never ends
