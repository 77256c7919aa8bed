// A provider of sign-ins for the browser tests: the certified `oidc-provider` with its own pages, in a process of its own.
// Whoever types a name there is that person; the name is the subject and the e-mail address.
//
// node provider.mjs CLIENT_ID CLIENT_SECRET REDIRECT_URI...     prints the issuer when it listens.

import { createServer } from "node:http";
import { Provider } from "oidc-provider";

const [client_id, client_secret, ...redirect_uris] = process.argv.slice(2);
const server = createServer();
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
// Under this name it is another site than the server under test, whose address has only digits.
const issuer = `http://localhost:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [{ client_id, client_secret, redirect_uris }],
  claims: { openid: ["sub"], profile: ["preferred_username"], email: ["email", "email_verified"] },
  // Asks for it also of clients that keep a secret.
  pkce: { required: () => true },
  cookies: { keys: ["keys of the tests"] },
  findAccount: (_, accountId) => ({
    accountId,
    claims: () => ({ sub: accountId, email: accountId, email_verified: true, preferred_username: accountId.split("@")[0] }),
  }),
});
provider.on("server_error", (_, error) => console.error(error));
server.on("request", provider.callback());
console.log(`provider ${issuer}`);
