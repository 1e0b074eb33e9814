"""The official OpenAI client, changed by base URL and key alone."""

import asyncio
import json

import openai
import pytest

from conftest import CLIENT_KEY, assert_throttled, until

ASK = [{"role": "user", "content": "Say hello."}]
TEXT = "Hello from the first provider."
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture
def client(gateway):
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=CLIENT_KEY) as client:
        yield client


def test_a_chat_is_answered(client, request_id):
    raw = client.chat.completions.with_raw_response.create(
        model="gpt-good", messages=ASK, extra_headers={"x-request-id": request_id}
    )
    answer = raw.parse()
    assert answer.choices[0].message.content == TEXT
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert raw.headers["x-request-id"] == request_id
    assert raw.headers["x-rondo-route"] == "openai"
    assert raw.headers["x-rondo-target"] == "first"
    assert raw.headers["x-rondo-attempts"] == "1"


# R-X4
def test_a_chat_streams(client):
    stream = client.chat.completions.create(
        model="gpt-good", messages=ASK, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == TEXT
    assert len([text for text in texts if text]) > 1


def test_tool_calls_are_assembled_from_a_stream(client):
    with client.chat.completions.stream(model="gpt-tools", messages=ASK, tools=[WEATHER]) as stream:
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    assert final.choices[0].finish_reason == "tool_calls"


# R-X4
def test_a_response_is_answered_and_streams(client):
    assert client.responses.create(model="gpt-good", input="Say hello.").output_text == TEXT
    with client.responses.stream(model="gpt-good", input="Say hello.") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert "".join(deltas) == TEXT
        assert stream.get_final_response().output_text == TEXT


def test_a_function_call_is_assembled_from_a_response_stream(client):
    tool = {"type": "function", "strict": True, **WEATHER["function"]}
    with client.responses.stream(model="gpt-tools", input="Say hello.", tools=[tool]) as stream:
        final = stream.get_final_response()
    (call,) = [item for item in final.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Paris"})


def test_completions_and_embeddings(client):
    assert client.completions.create(model="gpt-good", prompt="Say hello.").choices[0].text == TEXT
    embedding = client.embeddings.create(model="gpt-embed", input="Say hello.").data[0].embedding
    assert embedding == pytest.approx([0.0125, -0.025, 0.05, -0.1])


# R-F1
def test_a_throttled_target_is_passed_over(client):
    raw = client.chat.completions.with_raw_response.create(model="gpt-failover", messages=ASK)
    assert raw.parse().choices[0].message.content == TEXT
    assert raw.headers["x-rondo-target"] == "second"
    assert raw.headers["x-rondo-attempts"] == "2"
    assert raw.retries_taken == 0


# R-F1 R-A4
def test_a_throttled_target_is_passed_over_before_a_stream(client):
    raw = client.chat.completions.with_raw_response.create(model="gpt-failover", messages=ASK, stream=True)
    assert raw.headers["x-rondo-target"] == "second"
    texts = [chunk.choices[0].delta.content or "" for chunk in raw.parse() if chunk.choices]
    assert "".join(texts) == TEXT


# R-S20 R-P1
def test_a_final_throttle_is_the_clients_own_error(client):
    with pytest.raises(openai.RateLimitError) as caught:
        client.with_options(max_retries=0).chat.completions.create(model="gpt-exhausted", messages=ASK)
    assert caught.value.status_code == 429
    assert caught.value.code == "rate_limit_exceeded"
    assert_throttled(caught.value.response.headers, seconds=7, reason="exhausted")
    assert caught.value.response.headers["x-rondo-attempts"] == "2"


# R-S5 R-S16
def test_a_second_round_succeeds_within_one_call(client):
    raw = client.with_options(max_retries=0).chat.completions.with_raw_response.create(
        model="gpt-second-round", messages=ASK
    )
    assert raw.parse().choices[0].message.content
    assert raw.headers["x-rondo-round"] == "2"
    assert raw.headers["x-rondo-attempts"] == "3"


# R-S11 R-S21
def test_the_clients_own_retries_get_no_second_round(client, gateway, request_id):
    route = {"route": "openai-rounds"}
    waits = gateway.metric("rondo_exhaustion_waits_total", **route)
    suppressed = gateway.metric("rondo_exhaustion_suppressions_total", reason="caller_retry", **route)
    sends = gateway.metric("rondo_upstream_sends_total", **route)
    with pytest.raises(openai.RateLimitError) as caught:
        client.with_options(max_retries=2).chat.completions.create(
            model="gpt-rounds", messages=ASK, extra_headers={"x-request-id": request_id}
        )
    assert_throttled(caught.value.response.headers, seconds=1, reason="caller_retry")
    assert caught.value.response.headers["x-rondo-round"] == "1"
    gateway.settle()
    # Three calls: two rounds for the first, one for each retry.
    assert gateway.metric("rondo_exhaustion_waits_total", **route) - waits == 1
    suppressions = gateway.metric("rondo_exhaustion_suppressions_total", reason="caller_retry", **route)
    assert suppressions - suppressed == 2
    assert gateway.metric("rondo_upstream_sends_total", **route) - sends == 4 + 2 + 2
    assert [(line["rounds"], line["reason"]) for line in gateway.lines(request_id)] == [
        ("2", "exhausted"),
        ("1", "caller_retry"),
        ("1", "caller_retry"),
    ]


# R-D3
def test_an_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-nowhere", messages=ASK)
    assert caught.value.code == "model_not_found"
    assert "gpt-nowhere" in str(caught.value)


# R-D4 R-X4
def test_a_client_that_stops_reading_ends_the_upstream(client, gateway):
    cancelled = gateway.metric("rondo_requests_total", route="openai", outcome="cancelled")
    stream = client.chat.completions.create(model="gpt-slow", messages=ASK, stream=True)
    for number, _ in enumerate(stream):
        if number == 3:
            break
    stream.close()
    gateway.settle()
    assert gateway.metric("rondo_requests_total", route="openai", outcome="cancelled") - cancelled == 1


def test_models_are_listed(client):
    names = {model.id for model in client.models.list()}
    assert {"gpt-good", "gpt-failover", "claude-good", "gemini-good"} <= names


def test_the_async_client(gateway):
    async def all_at_once():
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=CLIENT_KEY) as client:
            async def unary():
                return (await client.chat.completions.create(model="gpt-good", messages=ASK)).choices[0].message.content

            async def streamed():
                stream = await client.chat.completions.create(model="gpt-failover", messages=ASK, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

            async def left():
                async with client.chat.completions.stream(model="gpt-slow", messages=ASK) as stream:
                    async for _ in stream:
                        return TEXT

            return await asyncio.gather(*[call() for call in (unary, streamed, left) for _ in range(8)])

    assert set(asyncio.run(all_at_once())) == {TEXT}


# R-D4
def test_an_async_call_that_is_cancelled_ends_its_request(gateway):
    async def give_up():
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=CLIENT_KEY) as client:
            call = asyncio.create_task(client.chat.completions.create(model="gpt-hang", messages=ASK))
            await asyncio.to_thread(until, lambda: gateway.metric("rondo_inflight_requests") == 1, "the request")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    cancelled = gateway.metric("rondo_requests_total", route="openai", outcome="cancelled", status="499")
    asyncio.run(give_up())
    gateway.settle()
    assert gateway.metric("rondo_requests_total", route="openai", outcome="cancelled", status="499") - cancelled == 1
