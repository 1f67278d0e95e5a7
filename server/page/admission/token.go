package admission

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
)

// newToken returns 256 random bits as text. Scripts of other sites cannot read it, since browsers
// do not let them read the page.
func newToken() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(bits[:])
}

// Token returns the token for the forms of the page.
func (g *Gate) Token() string { return g.token }

// Trusts returns a *Refusal unless token is the page's.
func (g *Gate) Trusts(token string) error {
	if subtle.ConstantTimeCompare([]byte(token), []byte(g.token)) == 1 { // bound: a field of the form, which has been charged
		return nil
	}
	return &Refusal{http.StatusForbidden, "The form is not one of this server, or of the server before a restart: go back and reload the page."}
}
