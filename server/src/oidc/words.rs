//! The library's types with the one choice that is ours: whatever else a provider says of a person is kept as it is,
//! because the claim that holds groups has another name everywhere.

use openidconnect::{
    AdditionalClaims, EmptyExtraTokenFields, EndpointMaybeSet, EndpointNotSet, EndpointSet, IdTokenClaims,
    IdTokenFields, StandardErrorResponse, StandardTokenResponse, UserInfoClaims,
    core::{
        CoreAuthDisplay, CoreAuthPrompt, CoreErrorResponseType, CoreGenderClaim, CoreJsonWebKey,
        CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm, CoreRevocableToken, CoreRevocationErrorResponse,
        CoreTokenIntrospectionResponse, CoreTokenType,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// All that is said of a person beside what the standard names.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Extra {
    /// By its name.
    #[serde(flatten)]
    pub claims: Map<String, Value>,
}

impl AdditionalClaims for Extra {}

/// What a code is exchanged for.
pub type Tokens = StandardTokenResponse<
    IdTokenFields<
        Extra,
        EmptyExtraTokenFields,
        CoreGenderClaim,
        CoreJweContentEncryptionAlgorithm,
        CoreJwsSigningAlgorithm,
    >,
    CoreTokenType,
>;

/// What an ID token says.
pub type Claims = IdTokenClaims<Extra, CoreGenderClaim>;

/// What the provider answers when it is asked about a person.
pub type Answered = UserInfoClaims<Extra, CoreGenderClaim>;

/// A provider whose document has been read.
pub type Client = openidconnect::Client<
    Extra,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    StandardErrorResponse<CoreErrorResponseType>,
    Tokens,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;
