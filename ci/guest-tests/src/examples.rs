// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The examples of `libberth`, run as a newcomer runs them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::env::{Env, Role};
use crate::util::{Res, check, fill};
use crate::{ensure, ensure_eq, tests};

tests! {
    Pair: example_send_and_receive_move_a_file;
    One: example_inline_messages_arrive, example_wait_polls_and_sleeps, example_channel_grows;
}

/// Runs an example, tells `line` what it prints, line by line, and answers all of it; fails when the example fails.
pub fn watched(name: &str, arguments: &[&str], mut line: impl FnMut(&str) -> Res) -> Res<String> {
    let mut child = Command::new(format!("example-{name}"))
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("example-{name}: {error}"))?;
    let mut text = String::new();
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
    loop {
        let start = text.len();
        if output.read_line(&mut text)? == 0 {
            break;
        }
        line(&text[start..])?;
    }
    let status = child.wait()?;
    ensure!(status.success(), "{name} {arguments:?}: {status}\n{text}");
    Ok(text)
}

/// Runs an example, and answers what it prints.
pub fn example(name: &str, arguments: &[&str]) -> Res<String> {
    watched(name, arguments, |_| Ok(()))
}

fn example_send_and_receive_move_a_file(env: &Env) -> Res {
    const SERVICE: &str = "830";
    const LENGTH: usize = 50_001;
    let file = std::env::temp_dir().join(format!("berth-example-{}", std::process::id()));
    let path = file.to_str().ok_or("path")?;
    match env.role {
        Role::A => {
            let mut bytes = vec![0; LENGTH];
            fill(&mut bytes, 72, 0);
            fs::write(&file, &bytes)?;
            // `send` does not wait for a listener.
            env.hear("listening")?;
            ensure!(example("send", &[&env.peer_ip.to_string(), SERVICE, path])?.contains("sent 50001 bytes"));
        }
        Role::B => {
            let text = watched("receive", &[SERVICE, path], |line| {
                if line.starts_with("listening") { env.tell("listening", "") } else { Ok(()) }
            })?;
            ensure!(text.contains("received 50001 bytes"), "{text}");
            let bytes = fs::read(&file)?;
            ensure_eq!(bytes.len(), LENGTH);
            check(&bytes, 72, 0)?;
        }
    }
    fs::remove_file(&file)?;
    env.meet("done")
}

fn example_inline_messages_arrive(env: &Env) -> Res {
    let text = example("inline", &[&env.own_ip.to_string(), "831"])?;
    ensure!(text.contains("3 messages arrived"), "{text}");
    Ok(())
}

fn example_wait_polls_and_sleeps(env: &Env) -> Res {
    let text = example("wait", &[&env.own_ip.to_string(), "832"])?;
    ensure!(text.contains("polled") && text.contains("waited for"), "{text}");
    Ok(())
}

fn example_channel_grows(env: &Env) -> Res {
    let text = example("channel", &[&env.own_ip.to_string(), "833"])?;
    ensure!(text.contains("sent 19 bytes\n") && text.contains("received 8000 bytes\n"), "{text}");
    Ok(())
}
