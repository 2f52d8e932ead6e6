//! The OpenAPI document: a reviewed snapshot that matches the routes.

use reqwest::Method;
use serde_json::Value;

use crate::test_server::TestServer;

#[test]
fn the_document_matches_the_reviewed_snapshot() {
    let json = amb_server::openapi_json().unwrap();
    insta::with_settings!({snapshot_path => "../snapshots", prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("openapi", json);
    });
}

#[tokio::test]
async fn every_documented_path_is_served_with_just_the_documented_methods() {
    let server = TestServer::sqlite().await;
    let document = server.call(Method::GET, "/openapi.json", None, None).await.expect(200);
    for (path, item) in document["paths"].as_object().unwrap() {
        let real = path.replace(['{', '}'], "");
        let answer = server.call(Method::TRACE, &real, None, None).await;
        assert_eq!(answer.status, 405, "{path}");
        let allowed = answer.headers["allow"].to_str().unwrap();
        let mut allowed: Vec<_> = allowed.split(',').filter(|m| *m != "HEAD").map(str::to_lowercase).collect();
        allowed.sort();
        let mut documented: Vec<_> = item.as_object().unwrap().keys().cloned().collect();
        documented.sort();
        assert_eq!(allowed, documented, "{path}");
    }
}

#[test]
fn operation_ids_are_unique() {
    let document: Value = serde_json::from_str(&amb_server::openapi_json().unwrap()).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(seen.insert(id.to_owned()), "{method} {path}: {id} is another's");
        }
    }
}

#[test]
fn every_documented_error_is_problem_json() {
    let document: Value = serde_json::from_str(&amb_server::openapi_json().unwrap()).unwrap();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                if status.as_str() >= "400" {
                    let schema = &response["content"]["application/problem+json"]["schema"]["$ref"];
                    assert_eq!(schema, "#/components/schemas/Problem", "{method} {path} {status}");
                }
            }
        }
    }
}

#[test]
fn the_503_mentions_an_idempotency_key_only_where_one_is_accepted() {
    let document: Value = serde_json::from_str(&amb_server::openapi_json().unwrap()).unwrap();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let takes_key = parameters.iter().any(|parameter| parameter["name"] == "Idempotency-Key");
            let outage = operation["responses"]["503"]["description"].as_str().unwrap_or_default();
            assert_eq!(outage.contains("Idempotency-Key"), takes_key, "{method} {path}: {outage}");
            assert!(!outage.is_empty() || path.starts_with("/health"), "{method} {path}");
        }
    }
}
