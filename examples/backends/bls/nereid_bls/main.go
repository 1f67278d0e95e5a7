// Command nereid_bls is backend bls as a plugin: <backend-directory>/bls/nereid_bls.
package main

import (
	"github.com/nereid-serving/nereid/examples/backends/bls"
	"github.com/nereid-serving/nereid/sdk/plugin"
)

func main() { plugin.Serve(bls.New) }
