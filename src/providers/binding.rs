//! What ties a request to the provider that issued something in it (R-S7, R-F8).
//!
//! Not here: where such things stand in a body; `scan_rules` holds those tables.

/// Why an operation must not change its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Binding {
    /// An earlier response is continued.
    Response,
    /// A stored conversation or thread is continued.
    Conversation,
    /// A stored prompt, preset or agent is used.
    Prompt,
    /// A container or environment is used again.
    Container,
    /// An uploaded file.
    File,
    /// A vector store, corpus or library.
    Store,
    /// Cached content.
    Cache,
    /// Content that only its issuer can decrypt.
    Encrypted,
    /// A signature that only its issuer can verify.
    Signature,
    /// An output item that the provider stored.
    Item,
    /// A connector, tunnel or credential for the provider's own tools.
    Connector,
    /// A place in a server's memory: slot, session, transferred cache, loaded adapter.
    Server,
    /// A model that exists in one account only.
    Model,
    /// Another id that a provider has issued.
    Id,
}

impl Binding {
    /// Every reason, in the order of the documentation.
    pub const ALL: [Binding; 14] = [
        Binding::Response,
        Binding::Conversation,
        Binding::Prompt,
        Binding::Container,
        Binding::File,
        Binding::Store,
        Binding::Cache,
        Binding::Encrypted,
        Binding::Signature,
        Binding::Item,
        Binding::Connector,
        Binding::Server,
        Binding::Model,
        Binding::Id,
    ];

    /// The word used in logs and by `rondo explain`.
    pub const fn label(self) -> &'static str {
        match self {
            Binding::Response => "response",
            Binding::Conversation => "conversation",
            Binding::Prompt => "prompt",
            Binding::Container => "container",
            Binding::File => "file",
            Binding::Store => "store",
            Binding::Cache => "cache",
            Binding::Encrypted => "encrypted",
            Binding::Signature => "signature",
            Binding::Item => "item",
            Binding::Connector => "connector",
            Binding::Server => "server",
            Binding::Model => "model",
            Binding::Id => "id",
        }
    }
}

/// The beginnings of names of models that exist in one account only.
const ACCOUNT_MODELS: [&str; 6] = [
    "ft:",
    "arn:",
    "projects/",
    "tunedModels/",
    "accounts/",
    "@preset/",
];

/// Whether the name alone binds the operation.
pub fn of_model(name: &str) -> Option<Binding> {
    ACCOUNT_MODELS
        .iter()
        .any(|prefix| name.starts_with(prefix))
        .then_some(Binding::Model)
}
