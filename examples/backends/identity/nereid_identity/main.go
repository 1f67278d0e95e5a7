// Command nereid_identity is backend identity as a plugin:
// <backend-directory>/identity/nereid_identity.
package main

import (
	"github.com/nereid-serving/nereid/examples/backends/identity"
	"github.com/nereid-serving/nereid/sdk/plugin"
)

func main() { plugin.Serve(identity.New) }
