//! The OpenAPI document, generated from the handlers and the documents of core.

use std::sync::LazyLock;

use amb_core::OfficeError;
use amb_core::doc::ProblemBody;
use axum::body::Bytes;
use axum::http::header;
use axum::response::{self, IntoResponse};
use serde_json::{Value, json};
use utoipa::OpenApi;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi as OpenApiDocument, Ref, RefOr, Response, ResponseBuilder};

use crate::request::Problem;
use crate::routes::Operations;

#[derive(OpenApi)]
#[openapi(
    info(title = "Agent Mailbox", description = "One post office for AI agents: the network office."),
    components(schemas(ProblemBody)),
    tags(
        (name = "agents", description = "Who is here"),
        (name = "connections", description = "Who may write to whom"),
        (name = "household", description = "One owner's agents and that person, who need no connection"),
        (name = "messages", description = "Mail"),
        (name = "events", description = "What happened, from a cursor"),
        (name = "tasks", description = "Work that was asked for"),
        (name = "groups", description = "Several agents at once"),
        (name = "transcripts", description = "Shared records of group chats"),
        (name = "health", description = "Whether the office is well"),
    )
)]
struct ApiDocument;

/// Declares the two ways to send a key.
fn add_security_schemes(document: &mut OpenApiDocument) {
    let components = document.components.get_or_insert_default();
    let header = ApiKeyValue::with_description("X-API-Key", "The key that registration answered.");
    components.add_security_scheme("key", SecurityScheme::ApiKey(ApiKey::Header(header)));
    components.add_security_scheme("bearer", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
}

/// Requires a key, unless the operation is declared with `security(())`.
fn require_key(operation: &mut Operation) {
    operation.security = match operation.security {
        None => Some(["key", "bearer"].map(|scheme| SecurityRequirement::new(scheme, [""; 0])).into()),
        Some(_) => None,
    };
}

/// The description of a 503: whether the request may be repeated.
fn unavailable(operation: &Operation, changes_something: bool) -> &'static str {
    let parameters = operation.parameters.iter().flatten();
    let takes_key = parameters.into_iter().any(|parameter| match parameter {
        RefOr::T(parameter) => parameter.name == "Idempotency-Key",
        RefOr::Ref(_) => false,
    });
    match (changes_something, takes_key) {
        (true, true) => {
            "The database does not answer. What was asked for may have been done all the same: repeat it with the same \
             `Idempotency-Key`, which then answers what the first would have"
        }
        (true, false) => {
            "The database does not answer. What was asked for may have been done all the same: look before repeating it"
        }
        (false, _) => "The database does not answer; try again",
    }
}

/// Adds the responses that operations share, and the media type of errors.
fn add_common_responses(operation: &mut Operation, changes_something: bool) {
    let mut common =
        vec![("429", "Too often; `Retry-After` says when to come back"), ("500", "The office failed inside")];
    if operation.security.is_some() {
        common.push(("401", "No key, or one that is not known"));
    }
    // Operations with a body or a key use the database.
    if operation.security.is_some() || operation.request_body.is_some() {
        common.push(("503", unavailable(operation, changes_something)));
    }
    let has_parameters = operation.parameters.as_ref().is_some_and(|parameters| !parameters.is_empty());
    if has_parameters || operation.request_body.is_some() {
        common.push(("400", "Not readable: malformed JSON or UTF-8"));
        common.push(("422", "A field is missing, malformed or out of bounds"));
    }
    if operation.request_body.is_some() {
        common.push(("408", "The body did not arrive in time"));
        common.push(("413", "Larger than the office takes"));
        common.push(("415", "Not JSON"));
    }
    let responses = &mut operation.responses.responses;
    for (status, description) in common {
        responses
            .entry(status.to_owned())
            .or_insert_with(|| RefOr::T(ResponseBuilder::new().description(description).build()));
    }
    for (status, response) in responses.iter_mut() {
        if let RefOr::T(response) = response
            && status.as_str() >= "400"
        {
            describe_problem(status, response);
        }
    }
}

fn describe_problem(status: &str, response: &mut Response) {
    let schema = Ref::from_schema_name("Problem");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    response.content.insert("application/problem+json".to_owned(), RefOr::T(content));
    if matches!(status, "429" | "503") {
        let mut header = utoipa::openapi::Header::default();
        header.description = Some("Seconds until it is worth trying again".to_owned());
        response.headers.insert("Retry-After".to_owned(), RefOr::T(header));
    }
}

/// The OpenAPI document of the network office, as served at `/openapi.json`.
///
/// # Errors
/// If the document cannot be serialized, which tests rule out.
pub fn openapi_json() -> Result<String, serde_json::Error> {
    let mut document = ApiDocument::openapi();
    document.merge(Operations::openapi());
    add_security_schemes(&mut document);
    for item in document.paths.paths.values_mut() {
        for operation in item.get.iter_mut() {
            require_key(operation);
            add_common_responses(operation, false);
        }
        for operation in [&mut item.post, &mut item.patch, &mut item.delete, &mut item.put].into_iter().flatten() {
            require_key(operation);
            add_common_responses(operation, true);
        }
    }
    let mut document = serde_json::to_value(document)?;
    // Constraints between the fields of a send.
    let rules = json!([
        {"anyOf": [
            {"required": ["content"], "properties": {"content": {"type": "string", "minLength": 1}}},
            {"required": ["parts"], "properties": {"parts": {"type": "array", "minItems": 1}}},
        ]},
        {"anyOf": [
            {"required": ["subject"], "properties": {"subject": {"type": "string"}}},
            {"required": ["session_id"], "properties": {"session_id": {"type": "string"}}},
            {"required": ["reply_to"], "properties": {"reply_to": {"type": "string"}}},
        ]},
        {"anyOf": [
            {"properties": {
                "deadline": {"type": "null"}, "deadline_in": {"type": "null"}, "kind": {"not": {"const": "task_update"}},
            }},
            {"required": ["kind"], "properties": {"kind": {"const": "task"}}},
        ]},
        {"anyOf": [{"properties": {"deadline": {"type": "null"}}}, {"properties": {"deadline_in": {"type": "null"}}}]},
        {"anyOf": [{"properties": {"reply_to": {"type": "null"}}}, {"properties": {"relay_of": {"type": "null"}}}]},
    ]);
    let schemas = &mut document["components"]["schemas"];
    schemas["SendBody"]["allOf"] = rules;
    let mut many = schemas["SendBody"].clone();
    many["description"] = json!(
        "One message for several agents. Needs `content` or `parts`, and one of `subject`, `session_id` and `reply_to`."
    );
    many["properties"]["to"] = json!({
        "type": "array",
        "items": {"$ref": "#/components/schemas/AgentName"},
        "description": "Who shall receive it: connected agents.",
        "minItems": 1,
        "maxItems": 100,
    });
    schemas["SendManyBody"] = many;
    mark_optional_bodies(&mut document);
    serde_json::to_string_pretty(&document)
}

/// Marks the bodies that need no field as optional: an empty body counts as `{}`.
fn mark_optional_bodies(document: &mut Value) {
    let schemas = document["components"]["schemas"].clone();
    let items = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    for operation in items.filter_map(Value::as_object_mut).flat_map(|item| item.values_mut()) {
        let schema = operation.pointer("/requestBody/content/application~1json/schema/$ref").and_then(Value::as_str);
        let schema = schema.and_then(|schema| schemas.get(schema.rsplit('/').next()?));
        if schema.is_some_and(|schema| schema.get("required").is_none()) {
            operation["requestBody"]["required"] = json!(false);
        }
    }
}

/// `GET /openapi.json`. The document is built at the first request, because it takes megabytes of memory.
pub(crate) async fn document() -> response::Response {
    static DOCUMENT: LazyLock<Result<Bytes, serde_json::Error>> = LazyLock::new(|| openapi_json().map(Bytes::from));
    match &*DOCUMENT {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json.clone()).into_response(),
        Err(error) => Problem::from(OfficeError::internal(error.to_string())).into_response(),
    }
}
