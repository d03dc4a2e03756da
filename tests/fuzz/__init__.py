"""Every parser of foreign files and answers, with spoilt input: a result or one DesaError."""
