package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"correlator/internal/operate/help"
)

// addMan adds the command that makes the manual pages of a release. It is hidden: who has a release
// has the pages.
func (a *app) addMan() {
	a.add(&cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages into a directory",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, page := range help.Pages(a.root, version) {
				if err := os.WriteFile(filepath.Join(args[0], page.Name), []byte(page.Text), 0o644); err != nil {
					return fmt.Errorf("writing a manual page: %w", err)
				}
			}
			return nil
		},
	}, nil)
}
