async def test_the_store_answers(store):
    assert await store.call("PING") == b"PONG"
