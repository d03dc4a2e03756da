"""A prompt: what a file of conf/prompt holds."""

MY_PROMPT = {
    "system": "You write seven short passages and reply with a JSON array of seven strings.",
    "user": {"default": '{"query":{query_json}}'},
    "requests": 1,
    "texts_per_request": 7,
    "structured": True,
    "max_new_tokens": 256,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 20,
}
