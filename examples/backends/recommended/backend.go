// Package recommended shows a backend that is ready for other users: it checks the configs of its
// models, reports statistics, and writes useful log lines for operators. Its models return their
// only input as their only output.
package recommended

import (
	"fmt"
	"log/slog"

	"github.com/nereid-serving/nereid/sdk"
)

// apiVersion is the version of Triton's backend API whose rules package sdk follows.
const apiVersion = "1.19"

// New initializes the backend, and logs its environment.
func New(env *sdk.BackendEnv) (sdk.Backend, error) {
	env.Log.Info("TRITONBACKEND_Initialize: " + env.Name)
	env.Log.Info("Triton TRITONBACKEND API version: " + apiVersion)
	env.Log.Info(fmt.Sprintf("'%s' TRITONBACKEND API version: %s", env.Name, apiVersion))
	env.Log.Info("backend configuration:\n" + env.Message)
	return &backend{state: "backend state", log: env.Log}, nil
}

// backend shows where to keep state that all models share.
type backend struct {
	state string
	log   *slog.Logger
}

func (b *backend) Attributes() sdk.Attributes { return sdk.Attributes{} }

func (b *backend) NewModel(env *sdk.ModelEnv) (sdk.Model, error) {
	return newModel(env)
}

func (b *backend) Close() {
	b.log.Info(fmt.Sprintf("TRITONBACKEND_Finalize: state is '%s'", b.state))
}
