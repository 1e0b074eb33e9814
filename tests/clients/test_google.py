"""The official Google GenAI client, changed by base URL and key alone. It retries nothing unless told to."""

import asyncio

import pytest
from google import genai
from google.genai import errors, types

from conftest import CLIENT_KEY, assert_throttled

ASK = "Say hello."
TEXT = "Hello from the first provider."
WEATHER = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name="weather",
            parameters=types.Schema(type="OBJECT", properties={"city": types.Schema(type="STRING")}),
        )
    ]
)


@pytest.fixture
def client(gateway):
    client = genai.Client(api_key=CLIENT_KEY, http_options=types.HttpOptions(base_url=gateway.url))
    yield client
    client.close()


def test_content_is_generated(client):
    answer = client.models.generate_content(model="gemini-good", contents=ASK)
    assert answer.text == TEXT
    headers = answer.sdk_http_response.headers
    assert headers["x-rondo-route"] == "gemini"
    assert headers["x-rondo-target"] == "first"


# R-X4
def test_content_streams(client):
    chunks = [chunk.text or "" for chunk in client.models.generate_content_stream(model="gemini-good", contents=ASK)]
    assert "".join(chunks) == TEXT and len(chunks) > 1


def test_a_function_call_comes_in_a_stream(client):
    config = types.GenerateContentConfig(tools=[WEATHER])
    stream = client.models.generate_content_stream(model="gemini-tools", contents=ASK, config=config)
    (call,) = [call for chunk in stream for call in chunk.function_calls or []]
    assert (call.name, call.args) == ("weather", {"city": "Paris"})


def test_tokens_are_counted(client):
    assert client.models.count_tokens(model="gemini-good", contents=ASK).total_tokens > 0


# R-X1
def test_a_batch_is_embedded_by_a_target_with_another_name(client):
    answer = client.models.embed_content(model="text-embed", contents=["Say hello.", "Say it again."])
    assert [embedding.values for embedding in answer.embeddings] == [pytest.approx([0.0125, -0.025, 0.05, -0.1])] * 2


@pytest.mark.parametrize("version", ["v1", "v1beta"])
def test_both_versions_are_served(gateway, version):
    options = types.HttpOptions(base_url=gateway.url, api_version=version)
    with genai.Client(api_key=CLIENT_KEY, http_options=options) as client:
        assert client.models.generate_content(model="gemini-good", contents=ASK).text == TEXT


def test_models_are_listed(client):
    assert "models/gemini-good" in {model.name for model in client.models.list()}


# R-F1
def test_a_throttled_target_is_passed_over(client):
    answer = client.models.generate_content(model="gemini-failover", contents=ASK)
    assert answer.text == TEXT
    headers = answer.sdk_http_response.headers
    assert headers["x-rondo-target"] == "second"
    assert headers["x-rondo-attempts"] == "2"


# R-F1 R-A4
def test_a_throttled_target_is_passed_over_before_a_stream(client):
    chunks = list(client.models.generate_content_stream(model="gemini-failover", contents=ASK))
    assert "".join(chunk.text or "" for chunk in chunks) == TEXT
    assert chunks[0].sdk_http_response.headers["x-rondo-target"] == "second"


# R-S20 R-P1
def test_a_final_throttle_is_the_clients_own_error(client):
    with pytest.raises(errors.APIError) as caught:
        client.models.generate_content(model="gemini-exhausted", contents=ASK)
    assert caught.value.code == 429
    assert caught.value.status == "RESOURCE_EXHAUSTED"
    assert_throttled(caught.value.response.headers, seconds=7, reason="exhausted")


# R-S5 R-S16
def test_a_second_round_succeeds_within_one_call(client):
    answer = client.models.generate_content(model="gemini-second-round", contents=ASK)
    assert answer.text
    headers = answer.sdk_http_response.headers
    assert (headers["x-rondo-round"], headers["x-rondo-attempts"]) == ("2", "3")


# R-D3
def test_an_unknown_model_is_not_found(client):
    with pytest.raises(errors.ClientError) as caught:
        client.models.generate_content(model="gemini-nowhere", contents=ASK)
    assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")
    assert "gemini-nowhere" in str(caught.value)


# R-D4 R-X4
def test_a_client_that_stops_reading_ends_the_upstream(client, gateway):
    cancelled = gateway.metric("rondo_requests_total", route="gemini", outcome="cancelled")
    stream = client.models.generate_content_stream(model="gemini-slow", contents=ASK)
    for number, _ in enumerate(stream):
        if number == 3:
            break
    stream.close()
    client.close()
    gateway.settle()
    assert gateway.metric("rondo_requests_total", route="gemini", outcome="cancelled") - cancelled == 1


def test_the_async_client(gateway):
    async def all_at_once():
        client = genai.Client(api_key=CLIENT_KEY, http_options=types.HttpOptions(base_url=gateway.url)).aio

        async def unary():
            return (await client.models.generate_content(model="gemini-good", contents=ASK)).text

        async def streamed():
            stream = await client.models.generate_content_stream(model="gemini-failover", contents=ASK)
            return "".join([chunk.text or "" async for chunk in stream])

        try:
            return await asyncio.gather(*[call() for call in (unary, streamed) for _ in range(8)])
        finally:
            await client.aclose()

    assert set(asyncio.run(all_at_once())) == {TEXT}
