package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// version and commit are set by the linker: see the Makefile.
var (
	version = "unknown"
	commit  = "unknown"
)

func (a *app) addVersion() {
	a.add(&cobra.Command{
		Use:   "version",
		Short: "Print the version, and what it was built from",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprint(cmd.OutOrStdout(), versionText())
		},
	}, nil)
}

func versionText() string {
	return fmt.Sprintf("%s\ncommit %s\n%s %s/%s\n", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
