//! Queries NCCL's RAS service (since NCCL 2.24) for its diagnosis: once, with a short timeout.
//!
//! It listens on localhost:28028 unless `NCCL_RAS_ADDR` is set, and answers a line of text with text (NCCL user guide,
//! Troubleshooting, RAS).

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

const DEFAULT_ADDRESS: &str = "localhost:28028";
/// Longer answers are cut.
const MAX_BYTES: u64 = 64 << 10;

/// The answer, or why there is none.
pub(super) fn query(address: Option<&str>, timeout: Duration) -> Result<String, String> {
    let address = address.unwrap_or(DEFAULT_ADDRESS);
    let deadline = Instant::now() + timeout;
    let unreachable =
        |cause: &dyn std::fmt::Display| format!("NCCL's RAS service at {address} was not reached: {cause}");
    let mut problem = unreachable(&"the name has no address");
    for target in address.to_socket_addrs().map_err(|cause| unreachable(&cause))? {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&target, left) {
            Ok(stream) => return converse(stream, deadline).map_err(|cause| unreachable(&cause)),
            Err(cause) => problem = unreachable(&cause),
        }
    }
    Err(problem)
}

/// Returns whatever arrived before the timeout.
fn converse(mut stream: TcpStream, deadline: Instant) -> std::io::Result<String> {
    stream.write_all(b"verbose status\n")?;
    let mut answer = Vec::new();
    let mut bytes = [0; 4096];
    while (answer.len() as u64) < MAX_BYTES {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend(&bytes[..count]),
        }
    }
    if answer.is_empty() {
        return Err(std::io::Error::other("it did not answer in time"));
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    fn serve(answer: Option<&'static str>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "verbose status\n");
            match answer {
                Some(text) => stream.write_all(text.as_bytes()).unwrap(),
                None => std::thread::sleep(Duration::from_secs(5)),
            }
        });
        address
    }

    #[test]
    fn the_answer_of_the_service_is_quoted_and_a_missing_one_reported() {
        let timeout = Duration::from_millis(300);
        let counts = "Communicators... 1 group, MISMATCH: rank 2 AllReduce 99\n";
        assert_eq!(query(Some(&serve(Some(counts))), timeout), Ok(counts.to_owned()));
        let silent = query(Some(&serve(None)), timeout).unwrap_err();
        assert!(silent.contains("did not answer in time"), "{silent}");
        let error = query(Some("127.0.0.1:1"), timeout).unwrap_err();
        assert!(error.contains("127.0.0.1:1 was not reached"), "{error}");
    }
}
