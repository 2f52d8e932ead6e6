//! TLS to PostgreSQL, as the URL asks for it.

use std::path::PathBuf;

use amb_core::Code;
use amb_store::{PostgresStore, Store};
use amb_testing::OwnCluster;

fn certificate(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/certificates").join(name)
}

/// Returns whether the connections of a store with this URL are encrypted.
async fn is_encrypted(url: &str) -> amb_store::Result<bool> {
    let store = PostgresStore::open(url).await?;
    store.ready().await?;
    let (client, connection) = tokio_postgres::connect(
        &format!("{}?sslmode=disable", url.split('?').next().unwrap_or(url)),
        tokio_postgres::NoTls,
    )
    .await
    .unwrap();
    tokio::spawn(connection);
    let sql = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
               WHERE a.application_name = 'amb'";
    let encrypted = client.query_one(sql, &[]).await.unwrap().get(0);
    store.close().await;
    Ok(encrypted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sslmode_in_the_url_selects_encryption_and_verification() {
    let cluster = OwnCluster::with_tls(&certificate("server.pem"), &certificate("server.key"));
    let (by_name, by_number) = (format!("localhost:{}", cluster.port), format!("127.0.0.1:{}", cluster.port));
    let url = |host: &str, options: &str| format!("postgres://mailbox@{host}/postgres{options}");
    let roots = format!("&sslrootcert={}", certificate("ca.pem").display());

    assert!(!is_encrypted(&url(&by_name, "?sslmode=disable")).await.unwrap());
    for options in ["", "?sslmode=prefer", "?sslmode=require"] {
        assert!(is_encrypted(&url(&by_name, options)).await.unwrap(), "{options}");
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        assert!(is_encrypted(&url(&by_name, &format!("?sslmode={mode}{roots}"))).await.unwrap(), "{mode}");
    }
    // The certificate is for the host name.
    assert!(is_encrypted(&url(&by_number, &format!("?sslmode=verify-ca{roots}"))).await.unwrap());
    let stranger = is_encrypted(&url(&by_number, &format!("?sslmode=verify-full{roots}"))).await.unwrap_err();
    assert_eq!(stranger.code(), Code::Unavailable);
    assert!(stranger.detail().contains("TLS") || stranger.detail().contains("certificate"), "{stranger}");
    // Not signed by a public root.
    for mode in ["verify-ca", "verify-full"] {
        is_encrypted(&url(&by_name, &format!("?sslmode={mode}"))).await.unwrap_err();
    }
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_the_url_requires_it() {
    let database = amb_testing::PostgresDatabase::fresh().await;
    assert!(PostgresStore::open(&format!("{}?sslmode=require", database.url())).await.is_err());
    PostgresStore::open(&format!("{}?sslmode=prefer", database.url())).await.unwrap().close().await;
}
