"""Server-sent events: frames and buffers, the hub that fills them, and the responses that send them."""
