package conda

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestVariablesOfEachForm(t *testing.T) {
	base := []string{"MY_ENV=1", "PATH=/usr/bin:/bin", "PYTHONHOME=/h", "PYTHONPATH=/p", "LD_LIBRARY_PATH=/cuda/lib", "VIRTUAL_ENV=/old", "LC_ALL=C"}
	for _, c := range []struct {
		name string
		e    Environment
		base []string
		want []string
	}{
		{"venv", Environment{Form: Venv, Directory: "/e", Python: "/e/bin/python"}, base, []string{
			"MY_ENV=1", "PYTHONPATH=/p", "LC_ALL=C", "PATH=/e/bin:/usr/bin:/bin", "VIRTUAL_ENV=/e", "VIRTUAL_ENV_PROMPT=(/e)", "LD_LIBRARY_PATH=/e/lib:/cuda/lib",
		}},
		{"bare", Environment{Form: Prefix, Directory: "/e", Python: "/e/bin/python3"}, nil, []string{
			"PATH=/e/bin", "VIRTUAL_ENV=/e", "VIRTUAL_ENV_PROMPT=(/e)", "LD_LIBRARY_PATH=/e/lib:",
		}},
		{"program", Environment{Form: Program, Python: "/opt/py/bin/python3.12"}, base, []string{
			"MY_ENV=1", "PYTHONPATH=/p", "LD_LIBRARY_PATH=/cuda/lib", "VIRTUAL_ENV=/old", "LC_ALL=C", "PATH=/opt/py/bin:/usr/bin:/bin",
		}},
		{"conda", Environment{Form: Conda, Directory: "/c/envs/ml", Python: "/c/envs/ml/bin/python", variables: []variable{{"A", "1"}, {"MY_ENV", "2"}, {"A", "3"}}}, []string{"MY_ENV=1"}, []string{
			"PATH=/c/envs/ml/bin", "VIRTUAL_ENV=/c/envs/ml", "VIRTUAL_ENV_PROMPT=(/c/envs/ml)", "LD_LIBRARY_PATH=/c/envs/ml/lib:",
			"CONDA_PREFIX=/c/envs/ml", "CONDA_DEFAULT_ENV=ml", "CONDA_SHLVL=1", "CONDA_PROMPT_MODIFIER=(ml) ", "MY_ENV=2", "A=3",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := slices.Clone(c.base)
			if got := c.e.Variables(c.base); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if !slices.Equal(c.base, before) {
				t.Errorf("the variables that were given have become %v", c.base)
			}
		})
	}
}

func TestPlainExportsOfScriptsAreTaken(t *testing.T) {
	for _, c := range []struct {
		name, script string
		want         []variable
		ignored      []string // prefixes
	}{
		{"bare", "export A=1\n  export B=x/y:z,w\nexport C=\n", []variable{{"A", "1"}, {"B", "x/y:z,w"}, {"C", ""}}, nil},
		{"quoted", "export A=\"a b\"\nexport B='$HOME `x`'\nexport C=a\"b\"'c'\n", []variable{{"A", "a b"}, {"B", "$HOME `x`"}, {"C", "abc"}}, nil},
		{"prefix", "export A=$CONDA_PREFIX/lib\nexport B=\"${CONDA_PREFIX}/share:$CONDA_PREFIX\"\nexport C='$CONDA_PREFIX'\n", []variable{{"A", "/e/lib"}, {"B", "/e/share:/e"}, {"C", "$CONDA_PREFIX"}}, nil},
		{"comments", "#!/bin/sh\n# export A=1\nexport B=2 # why\nexport C=3;\r\n", []variable{{"B", "2"}, {"C", "3"}}, nil},
		{"other expansions", "export A=$HOME\nexport B=\"$CONDA_PREFIXES\"\nexport C=`id`\nexport D=$(id)\nexport E=~/x\nexport F=\"a\\nb\"\nexport G=a*\n", nil,
			[]string{"s.sh:1:", "s.sh:2:", "s.sh:3:", "s.sh:4:", "s.sh:5:", "s.sh:6:", "s.sh:7:"}},
		{"several in a line", "export A=1 B=2\nexport C=1; export D=2\nexport -n E\nexport F\n", nil, []string{"s.sh:1:", "s.sh:2:", "s.sh:3:", "s.sh:4:"}},
		{"blocks", "if [ -n \"$X\" ]; then\n  export A=1\nfi\nf() {\n export B=2\n}\nexport C=3\nfor i in 1; do export D=4; done\ncase x in\n x) export E=1 ;;\nesac\nexport G=1\n",
			[]variable{{"C", "3"}, {"G", "1"}}, []string{"s.sh:2:", "s.sh:5:", "s.sh:8:", "s.sh:10:"}},
		{"conditions", "[ -z \"$X\" ] && export A=1\nexport B=2\n[ -z x ] &&\nexport C=3\n", []variable{{"B", "2"}}, []string{"s.sh:1:", "s.sh:3:"}},
		{"text over lines", "export A=1\nX=\"\nexport B=2\n\"\nexport C=3\n", []variable{{"A", "1"}}, []string{"s.sh:2:", "s.sh:2:"}},
		{"here-document", "cat <<EOF\nexport B=2\nEOF\n", nil, []string{"s.sh:1:"}},
		{"returns", "export A=1\nreturn 0\nexport B=2\n", []variable{{"A", "1"}}, nil},
		{"block that never began", "fi\nexport A=1\n", nil, []string{"s.sh:1:"}},
		{"owned", "export PATH=/x\nexport LD_LIBRARY_PATH=/x\nexport PYTHONHOME=/x\nexport NEREID_STUB=1\nexport CONDA_PREFIX=/x\n", nil, []string{"s.sh:1:", "s.sh:2:", "s.sh:3:", "s.sh:4:", "s.sh:5:"}},
		{"no exports", "A=1\n. ./other.sh\nunset B\necho hello\n", nil, []string{"s.sh:1:", "s.sh:2:", "s.sh:3:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := Environment{Form: Conda, Directory: "/e"}
			e.addScript("s.sh", c.script)
			if !slices.Equal(e.variables, c.want) {
				t.Errorf("got variables %v, want %v", e.variables, c.want)
			}
			if len(e.Ignored) != len(c.ignored) {
				t.Fatalf("got ignored %q, want %d", e.Ignored, len(c.ignored))
			}
			for i, want := range c.ignored {
				if !strings.HasPrefix(e.Ignored[i], want) {
					t.Errorf("got ignored line %q, want one that begins with %s", e.Ignored[i], want)
				}
			}
		})
	}
}

func TestActivationReadsFilesInTheOrderOfConda(t *testing.T) {
	root := Canonical(t)
	testkit.WriteFiles(t, root, map[string]string{
		"conda-meta/state":                `{"version": 1, "env_vars": {"B": "state", "A": "state", "GONE": "***unset***", "PATH": "/evil"}}`,
		"etc/conda/env_vars.d/one.json":   `{"A": "package", "P": "package"}`,
		"etc/conda/env_vars.d/two.json":   `not JSON`,
		"etc/conda/activate.d/2.sh":       "export B=second\n",
		"etc/conda/activate.d/1.sh":       "export B=first\nexport D=$CONDA_PREFIX/d\n",
		"etc/conda/activate.d/readme.txt": "export E=1\n",
	})
	e := Environment{Form: Conda, Directory: root}
	e.readActivation()
	want := []variable{{"A", "package"}, {"P", "package"}, {"A", "state"}, {"B", "state"}, {"B", "first"}, {"D", root + "/d"}, {"B", "second"}}
	if !slices.Equal(e.variables, want) {
		t.Errorf("got %v, want %v", e.variables, want)
	}
	if len(e.Ignored) != 2 || !strings.HasPrefix(e.Ignored[0], "two.json: ") || !strings.HasPrefix(e.Ignored[1], "state: PATH: ") {
		t.Errorf("got ignored %q, want two.json and state's PATH", e.Ignored)
	}
}

// FuzzScripts parses arbitrary activation scripts and checks that only well-formed variables
// result.
func FuzzScripts(f *testing.F) {
	for _, seed := range []string{"export A=1\n", "export A=\"$CONDA_PREFIX\"'x'\\", "if\nfi\nfi", "export =\nexport A=${CONDA_PREFIX", "x <<E\n", "{ }\n} {"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, script string) {
		e := Environment{Form: Conda, Directory: "/e"}
		e.addScript("s.sh", script)
		for _, v := range e.variables {
			if !variableName.MatchString(v.name) || slices.Contains(owned, v.name) || strings.ContainsAny(v.value, "\x00\n") {
				t.Errorf("script %q sets %q to %q", script, v.name, v.value)
			}
		}
	})
}

// TestActivationIsBounded checks that scripts which sum up to more than an environment can have
// leave few variables and few lines of the report.
func TestActivationIsBounded(t *testing.T) {
	root := Canonical(t)
	files := map[string]string{"conda-meta/history": "", "etc/conda/env_vars.d/a.json": `{"` + strings.Repeat("x", 10_000) + ` ": ""}`}
	for i := range 2*maxScripts + 10 {
		files[fmt.Sprintf("etc/conda/activate.d/%03d.sh", i)] = fmt.Sprintf("export V%d=1\n", i) + strings.Repeat("a=\n", 1000)
	}
	files["etc/conda/activate.d/000.sh"] += "export LONG=" + strings.Repeat("$CONDA_PREFIX", 20_000)
	testkit.WriteFiles(t, root, files)
	e := Environment{Form: Conda, Directory: root}
	e.readActivation()
	if len(e.variables) != maxScripts || e.variables[maxScripts-1].name != "V199" {
		t.Errorf("got %d variables, the last %v, want those of the first %d scripts", len(e.variables), e.variables[len(e.variables)-1], maxScripts)
	}
	total := 0
	for _, line := range e.Ignored {
		total += len(line)
	}
	if len(e.Ignored) != maxIgnored || total > 100_000 {
		t.Errorf("got %d ignored lines of %d bytes, want %d short ones", len(e.Ignored), total, maxIgnored)
	}
	// 1 MiB of scripts is read, and the rest is not.
	large := map[string]string{}
	for i := range 3 {
		large[fmt.Sprintf("etc/conda/activate.d/%d.sh", i)] = strings.Repeat("export A=1\n", 60_000)
	}
	e = Environment{Form: Conda, Directory: testkit.WriteFiles(t, Canonical(t), large)}
	e.readActivation()
	if len(e.variables) != maxVariables || len(e.Ignored) != maxIgnored {
		t.Errorf("got %d variables and %d ignored lines, want %d and %d", len(e.variables), len(e.Ignored), maxVariables, maxIgnored)
	}
}
