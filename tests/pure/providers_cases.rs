//! Certified answers and near misses of the vendors beside OpenAI, Anthropic and Gemini.

use super::providers_near_misses::{Case, case};
use super::providers_support::answer;

pub fn cases() -> Vec<Case> {
    let mut all = hosted();
    all.extend(self_hosted());
    all
}

fn hosted() -> Vec<Case> {
    vec![
        case(
            "azure.429.rate_limit",
            answer(
                "azure_openai",
                429,
                r#"{"error":{"code":"429","message":"m"}}"#,
            ),
            &[
                (429, r#"{"error":{"code":429,"message":"m"}}"#),
                (
                    429,
                    r#"{"error":{"code":"insufficient_quota","message":"m"}}"#,
                ),
                (
                    429,
                    r#"{"statusCode":429,"message":"Rate limit is exceeded."}"#,
                ),
                (503, r#"{"error":{"code":"429","message":"m"}}"#),
                (408, r#"{"error":{"code":"429","message":"m"}}"#),
            ],
        ),
        case(
            "azure.429.no_capacity",
            answer(
                "azure_openai",
                429,
                r#"{"error":{"code":"NoCapacity","message":"m"}}"#,
            ),
            &[(503, r#"{"error":{"code":"NoCapacity","message":"m"}}"#)],
        ),
        case(
            "mistral.429.rate_limited",
            answer(
                "mistral",
                429,
                r#"{"object":"error","message":"m","type":"rate_limited","code":"1300"}"#,
            ),
            &[
                (
                    429,
                    r#"{"message":"m","type":"rate_limited","code":"1300"}"#,
                ),
                (
                    429,
                    r#"{"object":"error","message":"m","type":"rate_limited","code":"3505"}"#,
                ),
                (
                    429,
                    r#"{"object":"error","message":"m","type":"rate_limited","code":1300}"#,
                ),
                (
                    429,
                    r#"{"object":"error","message":"m","type":"invalid_request_error","code":"1300"}"#,
                ),
                (
                    503,
                    r#"{"object":"error","message":"m","type":"rate_limited","code":"1300"}"#,
                ),
            ],
        ),
        case(
            "mistral.429.service_tier_capacity_exceeded",
            answer(
                "mistral",
                429,
                r#"{"object":"error","message":"m","type":"service_tier_capacity_exceeded","code":"3505"}"#,
            ),
            &[
                (
                    429,
                    r#"{"object":"error","message":"Service tier capacity exceeded","type":"invalid_request_error","code":null}"#,
                ),
                (
                    503,
                    r#"{"object":"error","message":"m","type":"service_tier_capacity_exceeded","code":"3505"}"#,
                ),
            ],
        ),
        case(
            "groq.429.rate_limit_exceeded",
            answer(
                "groq",
                429,
                r#"{"error":{"message":"m","type":"tokens","code":"rate_limit_exceeded"}}"#,
            ),
            &[
                (
                    413,
                    r#"{"error":{"message":"m","type":"tokens","code":"rate_limit_exceeded"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":"Request too large for m","type":"tokens","code":"rate_limit_exceeded"}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":"m","type":"tokens","code":"insufficient_quota"}}"#,
                ),
            ],
        ),
        case(
            "groq.498.capacity_exceeded",
            answer(
                "groq",
                498,
                r#"{"error":{"message":"m","type":"x","code":"capacity_exceeded"}}"#,
            ),
            &[
                (498, r#"{"error":{"message":"m","type":"x","code":null}}"#),
                (
                    503,
                    r#"{"error":{"message":"m","type":"x","code":"capacity_exceeded"}}"#,
                ),
            ],
        ),
        case(
            "deepseek.503.service_unavailable_error",
            answer(
                "deepseek",
                503,
                r#"{"error":{"message":"m","type":"service_unavailable_error","code":null}}"#,
            ),
            &[
                (
                    503,
                    r#"{"error":{"message":"m","type":"server_error","code":null}}"#,
                ),
                (
                    500,
                    r#"{"error":{"message":"m","type":"service_unavailable_error","code":null}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":"m","type":"rate_limit_error","code":"rate_limit_exceeded"}}"#,
                ),
            ],
        ),
        case(
            "openrouter.429.rate_limit_exceeded",
            answer(
                "openrouter",
                429,
                r#"{"error":{"code":429,"message":"m","metadata":{"error_type":"rate_limit_exceeded"}}}"#,
            ),
            &[
                (
                    429,
                    r#"{"error":{"code":429,"message":"Provider returned error","metadata":{"raw":"rate_limit_exceeded"}}}"#,
                ),
                (
                    429,
                    r#"{"error":{"code":429,"message":"Rate limit exceeded: free-models-per-day","metadata":{"error_type":"rate_limit_exceeded"}}}"#,
                ),
                (
                    429,
                    r#"{"error":{"code":502,"message":"m","metadata":{"error_type":"rate_limit_exceeded"}}}"#,
                ),
                (
                    402,
                    r#"{"error":{"code":402,"message":"m","metadata":{"error_type":"rate_limit_exceeded"}}}"#,
                ),
            ],
        ),
        case(
            "openrouter.529.provider_overloaded",
            answer(
                "openrouter",
                529,
                r#"{"error":{"code":529,"message":"m","metadata":{"error_type":"provider_overloaded"}}}"#,
            ),
            &[
                (
                    529,
                    r#"{"error":{"code":529,"message":"m","metadata":{"error_type":"provider_unavailable"}}}"#,
                ),
                (
                    503,
                    r#"{"error":{"code":503,"message":"m","metadata":{"error_type":"provider_overloaded"}}}"#,
                ),
            ],
        ),
    ]
}

fn self_hosted() -> Vec<Case> {
    vec![
        case(
            "vllm.503.queue_full",
            answer(
                "vllm",
                503,
                r#"{"error":{"message":"m","type":"ServiceUnavailableError","param":null,"code":503}}"#,
            ),
            &[
                (
                    503,
                    r#"{"error":{"message":"m","type":"InternalServerError","code":503}}"#,
                ),
                (
                    503,
                    r#"{"error":{"message":"m","type":"ServiceUnavailableError","code":500}}"#,
                ),
                (
                    503,
                    r#"{"error":{"message":"m","type":"ServiceUnavailableError","code":"503"}}"#,
                ),
                (503, r#"{"error":"m"}"#),
                (
                    500,
                    r#"{"error":{"message":"m","type":"ServiceUnavailableError","code":503}}"#,
                ),
            ],
        ),
        case(
            "sglang.503.queue_full",
            answer(
                "sglang",
                503,
                r#"{"object":"error","message":"The request queue is full.","type":"SERVICE_UNAVAILABLE","param":null,"code":503}"#,
            ),
            &[
                (
                    503,
                    r#"{"object":"error","message":"The request is aborted by a higher priority request.","type":"SERVICE_UNAVAILABLE","code":503}"#,
                ),
                (
                    503,
                    r#"{"message":"The request queue is full.","type":"SERVICE_UNAVAILABLE","code":503}"#,
                ),
                (
                    500,
                    r#"{"object":"error","message":"The request queue is full.","type":"SERVICE_UNAVAILABLE","code":503}"#,
                ),
            ],
        ),
        case(
            "tgi.429.overloaded",
            answer(
                "tgi",
                429,
                r#"{"error":"Model is overloaded","error_type":"overloaded"}"#,
            ),
            &[
                (
                    429,
                    r#"{"error":"Model is overloaded","error_type":"generation"}"#,
                ),
                (429, r#"{"error":"Model is overloaded"}"#),
                (
                    429,
                    r#"{"error":{"message":"Model is overloaded"},"error_type":"overloaded"}"#,
                ),
                (
                    424,
                    r#"{"error":"Model is overloaded","error_type":"overloaded"}"#,
                ),
            ],
        ),
        case(
            "ollama.503.busy",
            answer(
                "ollama",
                503,
                r#"{"error":{"message":"server busy, please try again.  maximum pending requests exceeded","type":"api_error","code":null}}"#,
            ),
            &[
                (
                    503,
                    r#"{"error":{"message":"server busy, please try again.","type":"api_error","code":null}}"#,
                ),
                (
                    429,
                    r#"{"error":{"message":"server busy, please try again.  maximum pending requests exceeded","type":"api_error"}}"#,
                ),
            ],
        ),
        case(
            "ollama.503.busy_native",
            answer(
                "ollama",
                503,
                r#"{"error":"server busy, please try again.  maximum pending requests exceeded"}"#,
            ),
            &[(
                500,
                r#"{"error":"server busy, please try again.  maximum pending requests exceeded"}"#,
            )],
        ),
        case(
            "llama_cpp.503.loading",
            answer(
                "llama_cpp",
                503,
                r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
            ),
            &[
                (
                    503,
                    r#"{"error":{"code":503,"message":"No slot","type":"unavailable_error"}}"#,
                ),
                (
                    503,
                    r#"{"error":{"code":503,"message":"Loading model","type":"server_error"}}"#,
                ),
                (
                    500,
                    r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
                ),
            ],
        ),
    ]
}
